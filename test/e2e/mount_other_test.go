//go:build !linux

package e2e

import "errors"

func mountSmall(string, int) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

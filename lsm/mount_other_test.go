//go:build !linux

package lsm

import "errors"

func mountSmall(string, int) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func remountReadOnly(string) error { return errors.ErrUnsupported }

//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

func watchDir(dir string) (*Watch, error) {
	return nil, fmt.Errorf("watching %s: %w", dir, errors.ErrUnsupported)
}

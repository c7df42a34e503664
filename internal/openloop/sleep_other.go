//go:build !linux

package openloop

import "time"

func sleep(d time.Duration) { time.Sleep(d) }

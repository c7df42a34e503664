package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// watchedEvents are the events after which a reader can find more data.
const watchedEvents = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO

// watchBufferBytes is enough for an event with the longest name.
const watchBufferBytes = 4 << 10

func watchDir(dir string) (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, &fs.PathError{Op: "inotify_init", Path: dir, Err: err}
	}
	events := os.NewFile(uintptr(fd), "inotify") // non-blocking: Close ends Read
	if _, err := unix.InotifyAddWatch(fd, dir, watchedEvents|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "inotify_add_watch", Path: dir, Err: err}, events.Close())
	}
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		forward(events, changed)
	}()
	return &Watch{C: changed, close: func() error {
		err := events.Close()
		<-ended
		return err
	}}, nil
}

// forward sends one hint for all pending events. Overflow of the queue and removal of
// the directory are events like others.
func forward(events *os.File, changed chan<- struct{}) {
	buffer := make([]byte, watchBufferBytes)
	for {
		if n, err := events.Read(buffer); err != nil || n == 0 {
			return // closed
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

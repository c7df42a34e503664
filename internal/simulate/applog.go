package simulate

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"docstore/internal/vfs"
)

// logPath is the log of the application.
const logPath = "/log/app.log"

// keptLogs is the number of rotated logs that are kept.
const keptLogs = 50

// appLog is the log to which the application writes its records. Its disk does not fail.
type appLog struct {
	files *vfs.Mem

	mu struct {
		sync.Mutex
		file vfs.File
	}
}

func newAppLog() (*appLog, error) {
	l := &appLog{files: vfs.NewMem()}
	if err := vfs.MakeDir(l.files, "/log"); err != nil {
		return nil, err
	}
	var err error
	l.mu.file, err = l.files.Create(logPath)
	return l, err
}

// write appends a line, in two parts with a pause between them if that is not 0.
func (l *appLog) write(line string, pause time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	half := 0
	if pause > 0 {
		half = len(line) / 2
		if _, err := l.mu.file.Write([]byte(line[:half])); err != nil {
			return err
		}
		time.Sleep(pause)
	}
	_, err := l.mu.file.Write([]byte(line[half:]))
	return err
}

// rotate renames the log, as logrotate does, and begins another one.
func (l *appLog) rotate() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := keptLogs; n >= 0; n-- {
		from := rotatedName(n)
		if _, err := l.files.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := l.files.Rename(from, rotatedName(n+1)); err != nil {
			return err
		}
	}
	if err := l.mu.file.Close(); err != nil {
		return err
	}
	var err error
	l.mu.file, err = l.files.Create(logPath)
	return err
}

func rotatedName(n int) string {
	if n == 0 {
		return logPath
	}
	return fmt.Sprintf("%s.%d", logPath, n)
}

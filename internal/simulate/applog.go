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
	account *account
	files   *vfs.Mem
	// isRead reports whether the records of append up to this place are durable.
	isRead func(place string) bool

	mu struct {
		sync.Mutex
		file    vfs.File
		entries []entry // in file
		setBack bool    // the file was truncated, and append has not read it again
	}
}

func newAppLog(a *account) (*appLog, error) {
	l := &appLog{account: a, files: vfs.NewMem()}
	if err := vfs.MakeDir(l.files, "/log"); err != nil {
		return nil, err
	}
	var err error
	l.mu.file, err = l.files.Create(logPath)
	return l, err
}

// write appends a record, in two parts with a pause between them if that is not 0.
func (l *appLog) write(e entry, pause time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account.wrote(e)
	l.mu.entries = append(l.mu.entries, e)
	line, half := e.record()+"\n", 0
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

// rotate renames the log, as logrotate does, and begins another one. A log that was truncated is
// not renamed before append has read it again: append --resume=false reads one file.
func (l *appLog) rotate() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.setBack && !l.isReadLocked() {
		return nil
	}
	if err := errors.Join(l.rename(0), l.mu.file.Close()); err != nil {
		return err
	}
	l.mu.entries, l.mu.setBack = nil, false
	var err error
	l.mu.file, err = l.files.Create(logPath)
	return err
}

// rename increments the numbers of rotated logs from a number on.
func (l *appLog) rename(from int) error {
	for n := keptLogs; n >= from; n-- {
		err := l.files.Rename(rotatedName(n), rotatedName(n+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isReadLocked reports whether all records of the file are durable in the queue.
func (l *appLog) isReadLocked() bool {
	return l.isRead(fmt.Sprintf("%s:%d", logPath, len(l.mu.entries)))
}

// quiet calls f while the application writes nothing.
func (l *appLog) quiet(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

// wasSetBack reports whether the file was truncated, and append has not read it again.
func (l *appLog) wasSetBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.setBack
}

// readPause bounds the time for which the application waits until append has read its log.
const readPause = 3 * time.Second

// truncate truncates the file when append has made its records durable, as it could not have read
// others afterwards, and leaves the first records: all that an older copy of the file has, or none
// after copytruncate. They are read again. before is called first. It reports whether the file was
// truncated.
func (l *appLog) truncate(left func(entries int) int, before func()) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 30 {
		if l.isReadLocked() {
			break
		}
		time.Sleep(readPause / 30)
	}
	if len(l.mu.entries) == 0 || !l.isReadLocked() {
		return false, nil
	}
	before()
	if err := l.copy(); err != nil {
		return false, err
	}
	l.mu.entries, l.mu.setBack = l.mu.entries[:left(len(l.mu.entries))], true
	size := int64(0)
	for _, e := range l.mu.entries {
		l.account.wrote(e)
		size += int64(len(e.record()) + 1)
	}
	return true, l.mu.file.Truncate(size)
}

// copy copies the file to the name of a rotated one, as copytruncate does.
func (l *appLog) copy() error {
	if err := l.rename(1); err != nil {
		return err
	}
	content, err := vfs.ReadFile(l.files, logPath)
	if err != nil {
		return err
	}
	to, err := l.files.Create(rotatedName(1))
	if err != nil {
		return err
	}
	_, err = to.Write(content)
	return errors.Join(err, to.Close())
}

func rotatedName(n int) string {
	if n == 0 {
		return logPath
	}
	return fmt.Sprintf("%s.%d", logPath, n)
}

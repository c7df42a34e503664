package lsm

import "docstore/wal"

// spareLog is the file of an obsolete log, kept for the next log: allocating the pages
// of new logs took a tenth of the processor time of 4 million writes. There is at most
// one. A log that was synced is never reused (wal.Writer.Retire).
//
// Steps: the manifest that makes the log obsolete is durable. The file is renamed to a
// spare name, so that a concurrent reader of the log finds its name missing
// (recovery.replay). Its header is erased, durably: under whichever name a power cut
// leaves it, it has no records. For a new log the header is written and the file
// renamed: it is a valid log as soon as it has the name. Open removes spare files, and
// Close removes its own.
type spareLog struct {
	path string
	file *wal.Spare
}

// retire closes obsolete logs and returns the paths to be removed. If keep is set, it
// keeps one reusable log as the spare.
func (s *logSet) retire(logs []*logFile, keep bool) (paths []string) {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	for _, log := range logs {
		if keep && s.keepSpare(log) {
			continue
		}
		if err := log.close(); err != nil {
			s.env.logger.Warn("a log could not be closed", "log", log.path, "error", err)
		}
		paths = append(paths, log.path)
	}
	return paths
}

// keepSpare keeps an obsolete log as the spare one, if there is none and the file is
// reusable. Called under syncing.
func (s *logSet) keepSpare(log *logFile) bool {
	s.mu.Lock()
	wanted := s.mu.spare == nil
	s.mu.Unlock()
	if !wanted || log.writer == nil || !log.writer.Reusable() {
		return false
	}
	path := s.env.path(spareName(log.number))
	if err := s.env.fs.Rename(log.path, path); err != nil {
		return false
	}
	log.path = path
	file, err := log.writer.Retire()
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.spare = &spareLog{path, file}
	return true
}

// create creates a log, in the spare file if its size fits. An unusable spare file is
// removed.
func (s *logSet) create(path string, number uint64, capacity int64, spare *spareLog) (*wal.Writer, error) {
	if spare != nil {
		if spare.file.Capacity() == capacity {
			writer, err := spare.file.Create(path, number)
			if err == nil {
				err = s.env.fs.Rename(spare.path, path)
			}
			if err == nil {
				return writer, nil
			}
			s.env.logger.Warn("a spare log could not be used", "path", spare.path, "error", err)
		}
		s.removeSpare(spare)
	}
	return wal.Create(path, number, &wal.Options{FS: s.env.fs, Capacity: capacity, Owner: s.env.id[:]})
}

func (s *logSet) takeSpare() *spareLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := s.mu.spare
	s.mu.spare = nil
	return spare
}

// dropSpare removes the spare log, if any.
func (s *logSet) dropSpare() {
	if spare := s.takeSpare(); spare != nil {
		s.removeSpare(spare)
	}
}

// removeSpare removes an unreferenced spare file. If that fails, the next Open removes
// it.
func (s *logSet) removeSpare(spare *spareLog) {
	_ = spare.file.Close()
	_ = s.env.fs.Remove(spare.path)
}

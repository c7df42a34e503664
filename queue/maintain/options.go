package maintain

import (
	"log/slog"
	"time"

	"docstore/internal/vfs"
)

// setDefaults sets the options that Compact, Truncate and Repair have in common, unless the
// caller has.
func setDefaults(fsys *vfs.FS, logger **slog.Logger, now *func() time.Time) {
	if *fsys == nil {
		*fsys = vfs.OS
	}
	if *logger == nil {
		*logger = slog.New(slog.DiscardHandler)
	}
	if *now == nil {
		*now = time.Now
	}
}

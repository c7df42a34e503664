package simulate

import (
	"path"

	"docstore/internal/simulate/chance"
)

// maxDestructive is the most faults of a destructive run.
const maxDestructive = 100

// destructiveKinds are faults that destroy data for good. Runs with them check only that no answer
// is wrong.
var destructiveKinds = []faultKind{
	{name: "store bit flip", store: true, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		name, err := w.store.FlipBit(w.alive)
		w.must(err)
		w.log.add("store", "a bit of %q is flipped", name)
		if dir := path.Dir(name); dir == "commit" || dir == "manifest" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.mu.storeDamaged = true
		}
		return nil
	}},
	{name: "updater bit flip", begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		name, err := w.ingest().disk.FlipBit(queueDir, "*")
		w.must(err)
		w.log.add("updater", "a bit of %q is flipped", name)
		return nil
	}},
	{name: "server file lost", server: true, files: serverFiles, begin: func(w *world, h *serverHost, f Fault, d *chance.Draw) func() {
		files, err := h.disk.Find(dataDir, f.Files)
		w.must(err)
		if len(files) > 0 {
			name := files[d.Int(len(files))].Name
			w.log.add(h.name, "%q is lost: %v", name, h.disk.Files().Remove(name))
			h.loseState()
		}
		return nil
	}},
}

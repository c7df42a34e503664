package capacity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func workload() Workload {
	return Workload{Documents: 100e6, Bytes: 910, IDBytes: 29, Hot: 1, Rate: 100e3, Batch: 1, Memory: 64 << 30, Cores: 8}
}

// The collection of docs/serving.md, of 30,000,000 documents: what was measured there, without dead bytes.
func TestMeasuredCollection(t *testing.T) {
	w := workload()
	w.Documents = 30e6
	p := w.Of()
	require.InEpsilon(t, 12.34e9, p.Queue*(1-deadShare), 0.05)
	require.InEpsilon(t, 1.80e9, p.Index, 0.1)
}

func TestOneMachineSuffices(t *testing.T) {
	w := workload()
	p := w.Of()
	require.Equal(t, 1, p.Columns)
	require.Zero(t, p.Shards)
	require.Equal(t, 3, p.Machines)
	require.LessOrEqual(t, p.Machine, w.Memory)
	require.InDelta(t, 0.25, p.Cores, 0.01)

	w.Rate = 4e6 // ten cores
	require.Equal(t, 3+SpareMachines, w.Of().Machines)
	w.Batch = 50
	require.Equal(t, 2+SpareMachines, w.Of().Machines)
}

// Whatever the workload is, the machines suffice for it.
func TestMachinesSuffice(t *testing.T) {
	for _, documents := range []float64{1, 1e6, 1e9, 1e12} {
		for _, hot := range []float64{0, 0.1, 1} {
			for _, rate := range []float64{0, 1e3, 1e7} {
				w := workload()
				w.Documents, w.Hot, w.Rate, w.Changes = documents, hot, rate, 1e5
				p := w.Of()
				require.LessOrEqual(t, p.Machine, memoryShare*w.Memory+minMemory, w)
				require.LessOrEqual(t, p.Cores, busyShare*w.Cores+1e-9, w)
				require.Equal(t, p.Columns > 1, p.Shards > 0)
				require.GreaterOrEqual(t, p.Machines, 1+SpareMachines)
			}
		}
	}
}

func TestImpossibleWorkloads(t *testing.T) {
	for name, change := range map[string]func(*Workload){
		"documents 0":          func(w *Workload) { w.Documents = 0 },
		"bytes 1.6777217e+07":  func(w *Workload) { w.Bytes = 16<<20 + 1 },
		"id-bytes 2000":        func(w *Workload) { w.IDBytes = 2000 },
		"hot 1.5":              func(w *Workload) { w.Hot = 1.5 },
		"rate -1":              func(w *Workload) { w.Rate = -1 },
		"batch 0":              func(w *Workload) { w.Batch = 0 },
		"machine-memory 1e+06": func(w *Workload) { w.Memory = 1e6 },
		"machine-cores 0":      func(w *Workload) { w.Cores = 0 },
	} {
		w := workload()
		require.NoError(t, w.Check())
		change(&w)
		require.ErrorContains(t, w.Check(), "--"+name+" is not between")
	}
}

package server

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"docstore/docservice/server/internal/machine"
	"docstore/internal/units"
)

// MinMemory is the minimum of Options.Memory.
const MinMemory = 16 << 20

const (
	// memoryShare: --memory auto is this fraction of the memory of the machine or container.
	// With Go's overhead (goMemoryFactor) the process uses half of it, and the page cache has
	// the rest for the index and the documents.
	memoryShare = 6
	// unknownMemory is --memory auto where the memory cannot be determined.
	unknownMemory = 512 << 20

	// goMemoryFactor times --memory is the memory limit of the Go runtime: the memory that
	// --memory limits, as much garbage, and the connections.
	goMemoryFactor = 3
	// leastGoMemory is the memory that Go needs in addition to a small --memory.
	leastGoMemory = 512 << 20
	// containerShare is the fraction, in percent, of the limit of a container that the Go
	// runtime may use: the kernel ends a process that exceeds the limit.
	containerShare = 85
)

// memoryPlan is the division of the memory of a machine or container.
type memoryPlan struct {
	machine machine.Memory // 0 bytes: unknown
	memory  int64          // of --memory
	goLimit int64          // of the Go runtime
	why     string         // of memory
}

// planMemory determines --memory if it is auto, and the limit of the Go runtime.
func planMemory(flag int64, m machine.Memory) memoryPlan {
	p := memoryPlan{machine: m, memory: flag, why: "--memory"}
	switch {
	case flag != 0:
	case m.Bytes == 0:
		p.memory, p.why = unknownMemory, "the memory of this machine is unknown"
	default:
		p.memory = max(MinMemory, m.Bytes/memoryShare)
		p.why = fmt.Sprintf("1/%d of %s (%s)", memoryShare, units.FormatBytes(m.Bytes), m.From)
	}
	p.goLimit = max(goMemoryFactor*p.memory, leastGoMemory)
	if m.Limited {
		p.goLimit = min(p.goLimit, m.Bytes/100*containerShare)
	}
	return p
}

// fits reports whether the machine or container has the memory, as far as that is known.
func (p memoryPlan) fits() bool { return p.machine.Bytes == 0 || p.memory <= p.machine.Bytes }

// noAddressSpace adds advice to an error of mapping memory or a file.
func noAddressSpace(err error, memory int64) error {
	if !errors.Is(err, syscall.ENOMEM) {
		return err
	}
	return fmt.Errorf("%w: the system gives the process no more memory; lower --memory, which is %s, or raise ulimit -v, vm.max_map_count or the limit of the container",
		err, units.FormatBytes(memory))
}

// memoryShares is the division of --memory.
type memoryShares struct{ index, dictionaries, messages int64 }

// shareMemory gives a quarter to messages and a sixteenth to dictionaries: of 512 MiB that
// is 500 dictionaries of the size that a writer makes.
func shareMemory(memory int64) memoryShares {
	s := memoryShares{messages: memory / 4, dictionaries: memory / 16}
	s.index = memory - s.messages - s.dictionaries
	return s
}

// planForThisMachine is planMemory for the machine or container of this process.
func planForThisMachine(flag int64) memoryPlan {
	memory, err := machine.ReadMemory(os.DirFS("/"))
	if err != nil {
		memory = machine.Memory{} // not Linux
	}
	return planMemory(flag, memory)
}

// SetMemoryLimit sets the memory limit of the Go runtime for a value of Options.Memory,
// unless GOMEMLIMIT is set.
func SetMemoryLimit(memory int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(planForThisMachine(memory).goLimit)
	}
}

// Explain describes what follows from the options and the memory of this machine or container.
func (o *Options) Explain() string { return o.explain(planForThisMachine(o.Memory)) }

func (o *Options) explain(p memoryPlan) string {
	var text strings.Builder
	line := func(name, value, why string) { fmt.Fprintf(&text, "%-14s %10s  %s\n", name, value, why) }
	shares := shareMemory(p.memory)
	line("memory", units.FormatBytes(p.memory), p.why)
	line("  index", units.FormatBytes(shares.index), "memtables and Bloom filters")
	line("  dictionaries", units.FormatBytes(shares.dictionaries), "of compressed documents")
	line("  messages", units.FormatBytes(shares.messages), "requests and responses")
	if limit := os.Getenv("GOMEMLIMIT"); limit != "" {
		line("go", limit, "GOMEMLIMIT")
	} else {
		why := fmt.Sprintf("limit of the Go runtime: %d times memory, at least %s", goMemoryFactor, units.FormatBytes(leastGoMemory))
		if p.machine.Limited {
			why += fmt.Sprintf(", at most %d %% of the container", containerShare)
		}
		line("go", units.FormatBytes(p.goLimit), why)
	}
	if p.machine.Bytes > 0 {
		line("page cache", units.FormatBytes(max(0, p.machine.Bytes-p.goLimit)), "at least, for files of indexes and documents, if nothing else runs here")
	}
	line("max-conns", strconv.Itoa(o.Limits.maxConns(p.memory)), fmt.Sprintf("--max-conns %d, at most one per %s of memory", o.Limits.Conns, units.FormatBytes(connMemory)))
	line("max-in-flight", strconv.Itoa(o.Limits.maxInFlight(p.memory)), fmt.Sprintf("--max-in-flight %d, at most one per %s of memory", o.Limits.InFlight, units.FormatBytes(inFlightMemory)))
	line("processors", strconv.Itoa(runtime.GOMAXPROCS(0)), "GOMAXPROCS, or the limit of the container")
	return text.String()
}

package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pin restricts all threads of a process to one of the processors that this process may use, by index;
// a negative index counts from the last one. Threads that start later inherit it. Unpin ends that.
func Pin(pid, index int) (unpin func() error, err error) {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &allowed); err != nil {
		return nil, fmt.Errorf("processors of process %d: %w", pid, err)
	}
	processors := processorsOf(&allowed)
	one.Set(processors[(index+len(processors))%len(processors)])
	return func() error { return setAffinity(pid, &allowed) }, setAffinity(pid, &one)
}

func processorsOf(set *unix.CPUSet) (list []int) {
	for cpu := 0; len(list) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// setAffinity repeats until it finds no thread with another affinity: one that had not been changed yet
// may have started another thread.
func setAffinity(pid int, set *unix.CPUSet) error {
	for changed := true; changed; {
		changed = false
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			var now unix.CPUSet
			id, err := strconv.Atoi(thread.Name())
			if err == nil {
				err = unix.SchedGetaffinity(id, &now)
			}
			if err == nil && now != *set {
				changed = true
				err = unix.SchedSetaffinity(id, set)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
				return fmt.Errorf("processors of thread %s of process %d: %w", thread.Name(), pid, err)
			}
		}
	}
	return nil
}

package program

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
)

// pipe returns a pipe that the runtime does not poll: every write would wake the poller,
// even while nothing reads.
func pipe() (r, w *os.File, err error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(ends[0]), "|0"), os.NewFile(uintptr(ends[1]), "|1"), nil
}

// sacrifice makes the kernel's out-of-memory killer prefer this process, and processes that it starts before
// restore is called. If the permission is missing, the killer chooses by size, which is rarely worse.
func sacrifice() (restore func()) {
	const path = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(path)
	if err != nil {
		return func() {}
	}
	_ = os.WriteFile(path, []byte("1000"), 0)
	return func() { _ = os.WriteFile(path, before, 0) }
}

// memoryOf sets, for each supervisor's process ID, the resident bytes of all its descendants. A sum over processes
// counts shared memory several times, so memoryOf counts again, without repetition, where the sum exceeds limit.
func memoryOf(supervisors map[int]int64, limit int64) {
	all := map[int]process{}
	eachProcess(func(p process) { all[p.pid] = p })
	members := map[int][]int{}
	for pid, p := range all {
		for above, ok := p.parent, true; ok; above, ok = all[above].parent, all[above].parent > 0 {
			if sum, watched := supervisors[above]; watched {
				supervisors[above] = sum + p.resident
				members[above] = append(members[above], pid)
				break
			}
		}
	}
	for supervisor, sum := range supervisors {
		if sum > limit && len(members[supervisor]) > 1 {
			supervisors[supervisor] = proportional(members[supervisor], limit)
		}
	}
}

// proportional returns the memory of processes in bytes, swap included, with shared
// pages divided among them. It returns more than limit if the memory is unknown.
func proportional(pids []int, limit int64) int64 {
	var sum int64
	for _, pid := range pids {
		rollup, err := os.ReadFile(procFile(pid, "smaps_rollup"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return limit + 1
		}
		for line := range bytes.Lines(rollup) {
			fields := bytes.Fields(line)
			if len(fields) >= 2 && (string(fields[0]) == "Pss:" || string(fields[0]) == "SwapPss:") {
				kib, _ := strconv.ParseInt(string(fields[1]), 10, 64) // always a number
				sum += kib << 10
			}
		}
	}
	return sum
}

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

// sacrifice makes the out-of-memory killer choose a process and its children first.
// Missing permission is ignored: it changes little.
func sacrifice(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0)
}

// memoryOf sets the resident bytes of each process group. If a plain sum exceeds limit,
// it counts shared memory once.
func memoryOf(groups map[int]int64, limit int64) {
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer proc.Close() //nolint:errcheck // only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return
	}
	members := map[int][]string{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if group, resident, ok := status(name); ok {
			if sum, watched := groups[group]; watched {
				groups[group] = sum + resident
				members[group] = append(members[group], name)
			}
		}
	}
	for group, sum := range groups {
		if sum > limit && len(members[group]) > 1 {
			groups[group] = proportional(members[group], limit)
		}
	}
}

// status returns a process's group and its resident memory in bytes.
func status(pid string) (group int, resident int64, ok bool) {
	const groupField, residentField = 2, 21 // after the name in brackets (proc_pid_stat(5): 5 and 24)
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, false // it has ended
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= residentField {
		return 0, 0, false
	}
	group, err = strconv.Atoi(string(fields[groupField]))
	pages, err2 := strconv.ParseInt(string(fields[residentField]), 10, 64)
	return group, pages * int64(os.Getpagesize()), err == nil && err2 == nil
}

// proportional returns the memory of processes in bytes, swap included, with shared
// pages divided among them. It returns more than limit if the memory is unknown.
func proportional(pids []string, limit int64) int64 {
	var sum int64
	for _, pid := range pids {
		rollup, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
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

package program

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
)

// sacrifice makes the system take a process, and the children that it starts,
// before others where memory runs out. It may be forbidden, which changes little.
func sacrifice(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0)
}

// memoryOf sets the bytes that each process group has in memory. What processes
// share counts once in a group where the plain sum is above limit.
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

// status is a process's group and what it has in memory, in bytes.
func status(pid string) (group int, resident int64, ok bool) {
	const groupField, residentField = 2, 21 // behind the name in brackets (proc_pid_stat(5): 5 and 24)
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

// proportional is what processes have, in bytes, a page of several divided among
// them, the part in swap included. It is more than limit where it is not known.
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
				kib, _ := strconv.ParseInt(string(fields[1]), 10, 64) // a number
				sum += kib << 10
			}
		}
	}
	return sum
}

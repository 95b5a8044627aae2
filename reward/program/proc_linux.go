package program

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a line of /proc/PID/stat.
type process struct {
	pid, parent, group int
	resident           int64 // bytes of memory
}

// eachProcess passes all processes to visit.
func eachProcess(visit func(process)) {
	eachPid(func(pid int) {
		if p, ok := readProcess(pid); ok {
			visit(p)
		}
	})
}

// eachPid passes the IDs of all processes to visit.
func eachPid(visit func(pid int)) {
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer proc.Close() //nolint:errcheck // only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			visit(pid)
		}
	}
}

// lastPid returns the id of the process or thread that started last, or 0 if it is unknown.
func lastPid() int {
	load, err := os.ReadFile("/proc/loadavg") // proc_loadavg(5)
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(load))
	pid, _ := strconv.Atoi(fields[len(fields)-1]) // always a number
	return pid
}

// procFile returns the path of a process's file in /proc.
func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// readProcess reads /proc/PID/stat. ok is false if the process has ended.
func readProcess(pid int) (p process, ok bool) {
	// Indices of fields after the name in parentheses: fields 4, 5 and 24 in proc_pid_stat(5).
	const parentField, groupField, residentField = 1, 2, 21
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return p, false // it has ended
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= residentField {
		return p, false
	}
	var errs [3]error
	var pages int64
	p.pid = pid
	p.parent, errs[0] = strconv.Atoi(string(fields[parentField]))
	p.group, errs[1] = strconv.Atoi(string(fields[groupField]))
	pages, errs[2] = strconv.ParseInt(string(fields[residentField]), 10, 64)
	p.resident = pages * int64(os.Getpagesize())
	return p, errs == [3]error{}
}

// killMarked kills all processes that have the entry KEY=VALUE in their environment. It looks again until it finds
// none, because a process may start children while it looks.
func killMarked(entry string) {
	for range maxTries {
		found := false
		eachPid(func(pid int) {
			environ, err := os.ReadFile(procFile(pid, "environ")) // empty if it is dead
			if err == nil && strings.Contains("\x00"+string(environ), "\x00"+entry+"\x00") {
				found = true
				_ = unix.Kill(pid, unix.SIGKILL) // fails if it has ended
			}
		})
		if !found {
			return
		}
	}
}

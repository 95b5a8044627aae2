package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// Limit is the memory that a process may use.
type Limit struct {
	Bytes int64  `json:"bytes"` // 0 if unknown
	Owner string `json:"of"`    // machineOwner or groupOwner: what has the limit
}

const (
	machineOwner = "this machine"
	groupOwner   = "this process's cgroup"
)

// ProcessLimit returns the limit of this process: the machine's memory, or the limit of the process's control
// group (cgroup, version 1 or 2) if that is smaller.
func ProcessLimit() Limit {
	return smaller(Limit{report.ThisMachine().Memory, machineOwner}, groupLimit(os.DirFS("/")))
}

// smaller returns the smaller of two limits. A known limit is smaller than an unknown one.
func smaller(a, b Limit) Limit {
	if b.Bytes > 0 && (a.Bytes <= 0 || b.Bytes < a.Bytes) {
		return b
	}
	return a
}

// groupLimit returns the smallest memory limit of this process's control group and the groups above it, or an
// unknown limit if none of them has one. root is the root of the file system.
//
// /proc/self/cgroup names the process's group in each hierarchy, /proc/self/mountinfo where each hierarchy is
// mounted (cgroups(7), proc_pid_mountinfo(5)). A machine may have hierarchies of both versions.
func groupLimit(root fs.FS) Limit {
	limit := Limit{}
	groups, mounts := read(root, "proc/self/cgroup"), read(root, "proc/self/mountinfo")
	for groupLine := range strings.Lines(groups) {
		// ID:controllers:path of the group. Version 2 has ID 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(groupLine), ":", 3)
		if len(fields) < 3 {
			continue
		}
		version2 := fields[0] == "0" && fields[1] == ""
		if !version2 && !slices.Contains(strings.Split(fields[1], ","), "memory") {
			continue
		}
		for mountLine := range strings.Lines(mounts) {
			if m, ok := parseMount(mountLine, version2); ok {
				limit = smaller(limit, m.limit(root, fields[2]))
			}
		}
	}
	return limit
}

// mount is a mounted hierarchy of control groups.
type mount struct {
	root  string // path of the group at the mount point
	point string // mount point
	file  string // name of the file that holds a group's memory limit
}

// parseMount parses a line of mountinfo. ok reports whether it mounts version 2, or, if version2 is false, the
// memory hierarchy of version 1.
func parseMount(line string, version2 bool) (m mount, ok bool) {
	// ID, parent, device, root, mount point, …, then after " - ": type, source, options of the file system.
	left, right, found := strings.Cut(line, " - ")
	mounted, filesystem := strings.Fields(left), strings.Fields(right)
	if !found || len(mounted) < 5 || len(filesystem) < 3 {
		return mount{}, false
	}
	m = mount{root: unescape(mounted[3]), point: unescape(mounted[4])}
	if version2 {
		m.file = "memory.max"
		return m, filesystem[0] == "cgroup2"
	}
	m.file = "memory.limit_in_bytes"
	return m, filesystem[0] == "cgroup" && slices.Contains(strings.Split(filesystem[2], ","), "memory")
}

// unescape decodes the characters that mountinfo writes as octal numbers.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// limit returns the smallest limit of the group with the given path and the groups above it. In a container
// the path may lie outside the mount; the container's group is then the one at the mount point.
func (m *mount) limit(root fs.FS, group string) (limit Limit) {
	below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok || below != "" && below[0] != '/' {
		below = "/"
	}
	for dir := path.Clean("/" + below); ; dir = path.Dir(dir) {
		text := strings.TrimSpace(read(root, strings.TrimPrefix(path.Join(m.point, dir, m.file), "/")))
		// Without a limit, version 2 has the word "max", and version 1 a number near the largest int64.
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < math.MaxInt64/2 {
			limit = smaller(limit, Limit{n, groupOwner})
		}
		if dir == "/" {
			return limit
		}
	}
}

// read returns a file's text, empty if it cannot be read.
func read(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(text)
}

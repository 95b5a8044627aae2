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
	Of    string `json:"of"`    // whose limit it is
}

const (
	ofMachine = "this machine"
	ofGroup   = "this process's cgroup"
)

// OfMachine returns the limit of this process: the smaller of the machine's memory and
// that of the process's control group, of version 1 or 2.
func OfMachine() Limit {
	return smaller(Limit{report.ThisMachine().Memory, ofMachine}, groupLimit(os.DirFS("/")))
}

// smaller returns the smaller limit, of those that are known.
func smaller(a, b Limit) Limit {
	if b.Bytes > 0 && (a.Bytes <= 0 || b.Bytes < a.Bytes) {
		return b
	}
	return a
}

// groupLimit returns the smallest memory limit of this process's control group and of the
// groups above it. root is the file system's root.
func groupLimit(root fs.FS) Limit {
	limit := Limit{}
	groups, mounts := read(root, "proc/self/cgroup"), read(root, "proc/self/mountinfo")
	for line := range strings.Lines(groups) {
		// hierarchy:controllers:path; version 2 has the hierarchy 0 and no controllers
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		second := fields[0] == "0" && fields[1] == ""
		if !second && !slices.Contains(strings.Split(fields[1], ","), "memory") {
			continue
		}
		for line := range strings.Lines(mounts) {
			if m, ok := parseMount(line, second); ok {
				limit = smaller(limit, m.limit(root, fields[2]))
			}
		}
	}
	return limit
}

// mount is where a hierarchy of control groups is mounted.
type mount struct {
	root  string // the group at the mount point
	point string
	file  string // the file with a group's limit
}

// parseMount reads a line of mountinfo. ok reports whether it is the memory hierarchy of
// version 1, or that of version 2.
func parseMount(line string, second bool) (m mount, ok bool) {
	left, right, ok := strings.Cut(line, " - ")
	own, kind := strings.Fields(left), strings.Fields(right)
	if !ok || len(own) < 5 || len(kind) < 3 {
		return mount{}, false
	}
	if m = (mount{unescape(own[3]), unescape(own[4]), "memory.max"}); second {
		return m, kind[0] == "cgroup2"
	}
	m.file = "memory.limit_in_bytes"
	return m, kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "memory")
}

// unescape decodes the characters that mountinfo writes as octal numbers.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// limit returns the smallest limit of a group and of those above it. A group outside the
// mount, as a container sees its own, is the one at the mount point.
func (m *mount) limit(root fs.FS, group string) (limit Limit) {
	below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok || below != "" && below[0] != '/' {
		below = "/"
	}
	for at := path.Clean("/" + below); ; at = path.Dir(at) {
		text := strings.TrimSpace(read(root, strings.TrimPrefix(path.Join(m.point, at, m.file), "/")))
		// Version 1 has no word for no limit, but a number near the largest.
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < math.MaxInt64/2 {
			limit = smaller(limit, Limit{n, ofGroup})
		}
		if at == "/" {
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

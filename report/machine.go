package report

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// machineFile is the name of the machine description in a run's folder.
const machineFile = "machine.json"

// Machine describes the machine on which a run was last started.
type Machine struct {
	CPU     string    `json:"cpu"`                    // processor model, or the architecture if unknown
	Cores   int       `json:"cores"`                  // cores the process may use
	Memory  int64     `json:"memory_bytes,omitempty"` // total memory; 0 if unknown
	System  string    `json:"system"`                 // operating system and architecture, such as linux/amd64
	Go      string    `json:"go"`                     // Go version of the build
	Easyrl  string    `json:"easyrl"`                 // module version
	Started time.Time `json:"started"`
}

// ThisMachine describes the current machine and build.
func ThisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Easyrl: "devel", Started: time.Now().UTC().Truncate(time.Second)}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		m.Easyrl = info.Main.Version
	}
	if name := findIn("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`); name != "" {
		m.CPU = name
	}
	if kilobytes, err := strconv.ParseInt(findIn("/proc/meminfo", `(?m)^MemTotal:\s*(\d+) kB$`), 10, 64); err == nil {
		m.Memory = kilobytes << 10
	}
	return m
}

// findIn returns the first submatch of pattern in a file, or "" if there is none.
func findIn(path, pattern string) string {
	text, err := os.ReadFile(path)
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if err != nil || found == nil {
		return ""
	}
	return string(found[1])
}

// Write writes m to a run's folder.
func (m Machine) Write(dir string) error { return writeJSON(filepath.Join(dir, machineFile), m) }

// ReadMachine reads the machine description in a run's folder. It returns nil if
// there is none.
func ReadMachine(dir string) (*Machine, error) {
	var m Machine
	found, err := readJSON(filepath.Join(dir, machineFile), &m)
	if err != nil || !found {
		return nil, err
	}
	return &m, nil
}

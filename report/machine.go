package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// MachineFile is the name of the description of the machine in a run's folder.
const MachineFile = "machine.json"

// Machine is where a run was started, the last time.
type Machine struct {
	CPU     string    `json:"cpu"`                    // the processor's model, or the architecture
	Cores   int       `json:"cores"`                  // that the process may use
	Memory  int64     `json:"memory_bytes,omitempty"` // of the machine; 0 where the system does not tell
	System  string    `json:"system"`                 // and the architecture, as in linux/amd64
	Go      string    `json:"go"`                     // that the command was built with
	Easyrl  string    `json:"easyrl"`                 // version of the module
	Started time.Time `json:"started"`
}

// ThisMachine describes where the process runs, and what it was built from.
func ThisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Easyrl: "devel", Started: time.Now().UTC().Truncate(time.Second)}
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

// findIn is the first group of pattern in a file; "" where there is none.
func findIn(path, pattern string) string {
	text, err := os.ReadFile(path)
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if err != nil || found == nil {
		return ""
	}
	return string(found[1])
}

// Write puts m in a run's folder.
func (m Machine) Write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = ReplaceFile(filepath.Join(dir, MachineFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write machine: %w", err)
	}
	return nil
}

// ReadMachine reads what a run's folder says of its machine; nil where it says
// nothing.
func ReadMachine(dir string) (*Machine, error) {
	path := filepath.Join(dir, MachineFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none is no error
	}
	var m Machine
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", path, err)
	}
	return &m, nil
}

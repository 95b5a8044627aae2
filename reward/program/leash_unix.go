//go:build unix && !linux

package program

import (
	"os"
	"os/exec"
	"syscall"
)

// leash ties a program to this process.
type leash struct{ cmd *exec.Cmd }

// tether gives the program and its children a process group.
func tether(cmd *exec.Cmd) (*leash, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &leash{cmd}, nil
}

func (l *leash) started() {}

// cut kills the process group. It fails only if the group is gone.
func (l *leash) cut() { _ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL) }

// ended kills what the program left behind. state is nil if it did not start.
func (l *leash) ended(state *os.ProcessState) {
	if state != nil {
		l.cut()
	}
}

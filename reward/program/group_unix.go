//go:build unix

package program

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the process and its children in a group of their own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills them all. It fails only where they are gone.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

//go:build !unix

package program

import (
	"os"
	"os/exec"
)

// leash ties a program to this process.
type leash struct{ cmd *exec.Cmd }

// tether leaves cmd as it is: here cut can kill only the process itself.
func tether(cmd *exec.Cmd) (*leash, error) { return &leash{cmd}, nil }

func (l *leash) started() {}

// cut kills the process. It fails only if the process is gone.
func (l *leash) cut() { _ = l.cmd.Process.Kill() }

func (l *leash) ended(*os.ProcessState) {}

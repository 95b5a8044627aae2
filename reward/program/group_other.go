//go:build !unix

package program

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup kills the process. It fails only if the process is gone.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

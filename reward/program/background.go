package program

import (
	"os"
	"os/exec"
	"time"
)

// Background is a program that runs on its own, without requests and answers. Like a Process, it ends with
// all its descendants, at the latest when this process dies.
type Background struct {
	cmd   *exec.Cmd
	leash *leash
	done  chan struct{}
	err   error // set before done is closed
}

// Launch starts argv with the environment of this process and the additional variables env. The program writes
// its output to a file, which the caller may close after Launch.
func Launch(argv, env []string, output *os.File) (*Background, error) {
	b := &Background{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	b.cmd.Stdout, b.cmd.Stderr = output, output
	b.cmd.Env = append(os.Environ(), env...)
	var err error
	if b.leash, err = tether(b.cmd); err != nil {
		return nil, err
	}
	if err = b.cmd.Start(); err != nil {
		b.leash.ended(nil)
	}
	b.leash.started()
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(b.done)
		b.err = b.cmd.Wait()
		b.leash.ended(b.cmd.ProcessState)
	}()
	return b, nil
}

// Done is closed when the program and its descendants have ended.
func (b *Background) Done() <-chan struct{} { return b.done }

// Err returns the program's exit error. Call it after Done is closed.
func (b *Background) Err() error { return b.err }

// Kill kills the program and its descendants and waits for them.
func (b *Background) Kill() {
	b.leash.cut()
	killTimer := time.AfterFunc(2*reapDelay, func() { _ = b.cmd.Process.Kill() }) // fails only if it is gone
	defer killTimer.Stop()
	<-b.done
}

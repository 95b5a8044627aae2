// Package program runs programs that answer lines with lines, within limits of time and
// memory. On Linux a supervisor ends a program with all its descendants when this process
// dies; elsewhere programs have a process group, which Kill ends.
package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/internal/bytesize"
)

// MaxAnswer is the maximum length of the line of an answer in bytes, 1 MiB.
const MaxAnswer = 1 << 20

const (
	maxQuote  = 200              // bytes of the program's output quoted in an error
	reapDelay = 10 * time.Second // for a process that has closed its output to exit
)

// ErrTimeout is wrapped by the error of a late answer.
var ErrTimeout = errors.New("no reply in time")

// ErrEnded is wrapped by the error of a process that ended before it began to answer.
var ErrEnded = errors.New("program exited without a reply")

// Process is a running program. It is not safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	leash  *leash
	stdin  io.WriteCloser
	stdout io.ReadCloser
	lines  *bufio.Reader
	stderr *tail
	memory *Guard

	exceeded atomic.Bool // set by Guard before it kills the program
}

// Environment returns the variables that a program gets: PATH, HOME, LANG, TMPDIR and those named,
// with their values in this process. A named variable that is not set is an error. The program
// gets no others, which may hold secrets of this process.
func Environment(names []string) ([]string, error) {
	env := []string{} // not nil, which would be the whole environment
	find := func(name string) bool {
		value, ok := os.LookupEnv(name)
		if ok {
			env = append(env, name+"="+value)
		}
		return ok
	}
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		find(name)
	}
	for _, name := range names {
		if !find(name) {
			return nil, fmt.Errorf("variable %s is not set", name)
		}
	}
	return env, nil
}

// Start runs argv with the variables env, which replace the environment of this process. The
// caller uses the process until Ask fails, or kills it.
func Start(argv, env []string, memory *Guard) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), memory: memory}
	p.cmd.Env = env
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	memory.add(p)
	p.lines = bufio.NewReaderSize(p.stdout, MaxAnswer)
	return p, nil
}

// start starts the program with pipes for its standard files. On an error nothing is running.
func (p *Process) start() (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	if p.stderr, err = newTail(); err != nil {
		return err
	}
	p.cmd.Stderr = p.stderr.w
	if p.leash, err = tether(p.cmd); err == nil {
		if err = p.cmd.Start(); err != nil {
			p.leash.ended(nil)
		}
		p.leash.started()
	}
	if err != nil {
		p.stderr.close()
	}
	return err
}

// Ask writes requests, one per line, and passes n answers, one per line, to accept in
// order. Each answer may take timeout, counted from the previous one. If Ask returns an
// error, it has accepted fewer than n answers and killed the process.
func (p *Process) Ask(ctx context.Context, requests []byte, n int, timeout time.Duration,
	accept func(i int, answer []byte) error) (accepted int, err error) {
	// One goroutine writes, so that a program that answers before it has read everything does not block both
	// sides. One reads and accepts. This one keeps the time; after an error it interrupts both.
	var pipes sync.WaitGroup
	replies := make(chan error)    // nil for each accepted answer, or the reader's last error
	written := make(chan struct{}) // closed when all requests are written
	stop := make(chan struct{})    // closed when nothing receives from replies any more
	pipes.Go(func() {
		defer close(written)
		_, _ = p.stdin.Write(requests) // fails if the process has ended, which its output shows
	})
	pipes.Go(func() {
		for i := range n {
			line, err := p.read()
			if err == nil {
				err = accept(i, line)
			}
			select {
			case replies <- err:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	})
	accepted, err = awaitReplies(ctx, n, timeout, replies, written)
	close(stop)
	var ended error
	switch {
	case errors.Is(err, ErrEnded):
		ended = p.reap()
	case err != nil:
		p.interrupt()
	}
	pipes.Wait()
	if err == nil {
		return accepted, nil
	}
	if !errors.Is(err, ErrEnded) {
		p.Kill()
	}
	return accepted, p.explain(err, ended)
}

// awaitReplies waits for n replies, each within timeout of the previous one, and until all requests are written. It
// returns the number of replies before the first error.
func awaitReplies(ctx context.Context, n int, timeout time.Duration, replies <-chan error, written <-chan struct{}) (
	accepted int, err error) {
	clock := time.NewTimer(timeout)
	defer clock.Stop()
	for accepted < n || written != nil {
		select {
		case err := <-replies:
			if err != nil {
				return accepted, err
			}
			accepted++
			clock.Reset(timeout)
		case <-written:
			written = nil // a nil channel is never ready
		case <-clock.C:
			return accepted, fmt.Errorf("%w: %v", ErrTimeout, timeout)
		case <-ctx.Done():
			return accepted, context.Cause(ctx)
		}
	}
	return accepted, nil
}

// read returns the next line.
func (p *Process) read() ([]byte, error) {
	line, err := p.lines.ReadSlice('\n')
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("reply is longer than %s", bytesize.Text(MaxAnswer))
	case len(line) == 0:
		return nil, ErrEnded
	default:
		return nil, fmt.Errorf("program exited in the middle of its reply %q", OneLine(line))
	}
}

// explain adds the exit status and the last line of standard error to err.
func (p *Process) explain(err, ended error) error {
	var exit *exec.ExitError
	switch {
	case p.exceeded.Load():
		err = p.memory.err()
	case errors.As(ended, &exit) && exit.Exited():
		err = fmt.Errorf("%w: %w", err, exit)
	}
	if said := p.stderr.lastLine(); said != "" {
		err = fmt.Errorf("%w; its standard error ends with: %s", err, said)
	}
	return err
}

// interrupt kills the process and its descendants, which unblocks Ask.
func (p *Process) interrupt() {
	p.leash.cut()
	// These fail only if the process is gone already.
	_ = p.stdin.Close()
	_ = p.stdout.Close()
}

// Kill kills the process and waits for it.
func (p *Process) Kill() {
	p.memory.remove(p)
	p.interrupt()
	_ = p.wait() // reports the signal
}

// reap waits for a process that has closed its output and returns its exit error, or nil if
// it has to be killed.
func (p *Process) reap() error {
	p.memory.remove(p)
	killTimer := time.AfterFunc(reapDelay, p.leash.cut)
	if err := p.wait(); killTimer.Stop() {
		return err
	}
	return nil
}

// wait waits for the process and its descendants to end and returns the exit error.
func (p *Process) wait() error {
	killTimer := time.AfterFunc(2*reapDelay, func() { _ = p.cmd.Process.Kill() }) // fails only if it is gone
	defer killTimer.Stop()
	err := p.cmd.Wait()
	p.leash.ended(p.cmd.ProcessState)
	p.stderr.close()
	return err
}

// OneLine returns the beginning of b on one line.
func OneLine(b []byte) string {
	text := string(bytes.Join(bytes.Fields(b[:min(len(b), maxQuote)]), []byte(" ")))
	if len(b) > maxQuote {
		text += "…"
	}
	return text
}

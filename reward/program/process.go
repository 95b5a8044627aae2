// Package program runs programs that answer lines with lines, within limits of
// time and memory.
package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// MaxAnswer is how long an answer's line may be, in bytes.
const MaxAnswer = 1 << 20

const (
	maxTail   = 4 << 10          // bytes of standard error that are kept
	maxQuote  = 200              // bytes of the program's output in an error
	reapDelay = 10 * time.Second // for output of a killed process that its children hold open
)

// ErrTimeout is wrapped by the error of an answer that took too long.
var ErrTimeout = errors.New("no answer in time")

// ErrEnded is wrapped where a process ended before it began to answer.
var ErrEnded = errors.New("program ended without an answer")

// Process is one running program. One goroutine uses it at a time.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	lines  *bufio.Reader
	stderr *tail
	memory *Guard
	over   atomic.Bool // had too much memory
}

// Start runs argv, with its children in a group of their own. The caller asks it
// until that fails, or kills it.
func Start(argv []string, memory *Guard) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), stderr: &tail{}, memory: memory}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = reapDelay
	ownGroup(p.cmd)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	if err = p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	memory.add(p)
	p.lines = bufio.NewReaderSize(p.stdout, MaxAnswer)
	return p, nil
}

// Ask writes requests, one a line, and gives n answers to accept in turn, each a
// line. An answer may take timeout, counted from the one before it. With an error
// fewer were accepted, and the process has been killed.
func (p *Process) Ask(ctx context.Context, requests []byte, n int, timeout time.Duration, accept func(i int, answer []byte) error) (accepted int, err error) {
	var talk sync.WaitGroup
	replies, written, stop := make(chan error), make(chan struct{}), make(chan struct{})
	talk.Go(func() {
		defer close(written)
		_, _ = p.stdin.Write(requests) // it fails where the process has ended, which its output shows
	})
	talk.Go(func() {
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
	accepted, err = collect(ctx, n, timeout, replies, written)
	close(stop)
	var ended error
	switch {
	case errors.Is(err, ErrEnded):
		ended = p.reap()
	case err != nil:
		p.interrupt()
	}
	talk.Wait()
	if err == nil {
		return accepted, nil
	}
	if !errors.Is(err, ErrEnded) {
		p.Kill()
	}
	return accepted, p.explain(err, ended)
}

// collect counts n replies and waits until all requests are written.
func collect(ctx context.Context, n int, timeout time.Duration, replies <-chan error, written <-chan struct{}) (accepted int, err error) {
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
			written = nil
		case <-clock.C:
			return accepted, fmt.Errorf("%w: %v", ErrTimeout, timeout)
		case <-ctx.Done():
			return accepted, context.Cause(ctx)
		}
	}
	return accepted, nil
}

// read is the next line.
func (p *Process) read() ([]byte, error) {
	line, err := p.lines.ReadSlice('\n')
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("answer is longer than %d bytes", MaxAnswer)
	case len(line) == 0:
		return nil, ErrEnded
	default:
		return nil, fmt.Errorf("program ended within its answer %q", OneLine(line))
	}
}

// explain adds how the process ended and what it last said to err.
func (p *Process) explain(err, ended error) error {
	if p.over.Load() {
		err = p.memory.err()
	}
	var exit *exec.ExitError
	if errors.As(ended, &exit) && exit.Exited() {
		err = fmt.Errorf("%w: %w", err, exit)
	}
	if said := p.stderr.lastLine(); said != "" {
		err = fmt.Errorf("%w; its standard error ends: %s", err, said)
	}
	return err
}

// interrupt kills the process and its children, and makes exchange return.
func (p *Process) interrupt() {
	killGroup(p.cmd)
	// Errors are those of a process that is gone already.
	_ = p.stdin.Close()
	_ = p.stdout.Close()
}

// Kill ends the process and waits for it.
func (p *Process) Kill() {
	p.memory.remove(p)
	p.interrupt()
	_ = p.cmd.Wait() // reports the signal
}

// reap waits for a process that has closed its output, and returns how it ended.
func (p *Process) reap() error {
	p.memory.remove(p)
	impatience := time.AfterFunc(reapDelay, func() { killGroup(p.cmd) })
	defer impatience.Stop()
	return p.cmd.Wait()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b[max(0, len(b)-maxTail):]...)
	t.end = t.end[max(0, len(t.end)-maxTail):]
	return len(b), nil
}

func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.end)
	return OneLine(text[bytes.LastIndexByte(text, '\n')+1:])
}

// OneLine is the beginning of b, on one line.
func OneLine(b []byte) string {
	text := string(bytes.Join(bytes.Fields(b[:min(len(b), maxQuote)]), []byte(" ")))
	if len(b) > maxQuote {
		text += "…"
	}
	return text
}

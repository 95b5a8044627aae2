package reward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

const (
	maxAnswer = 1 << 20     // bytes of an answer's line
	maxTail   = 4 << 10     // bytes of standard error that are kept
	maxQuote  = 200         // bytes of the program's output in an error
	reapDelay = time.Second // for output of a killed process that its children hold open
)

// errEnded is wrapped where a process ended before it began to answer.
var errEnded = errors.New("program ended without an answer")

// process is one running program. One goroutine uses it at a time.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	lines  *bufio.Reader
	stderr *tail
	asked  int64 // requests so far
}

func start(argv []string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), stderr: &tail{}}
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
	p.lines = bufio.NewReaderSize(p.stdout, maxAnswer)
	return p, nil
}

// ask writes a line and reads one. On an error the process has been killed.
func (p *process) ask(ctx context.Context, line []byte) ([]byte, error) {
	type outcome struct {
		reply []byte
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		reply, err := p.exchange(line)
		done <- outcome{reply, err}
	}()
	select {
	case o := <-done:
		switch {
		case errors.Is(o.err, errEnded):
			return nil, p.explain(o.err, p.reap())
		case o.err != nil:
			p.kill()
			return nil, p.explain(o.err, nil)
		}
		return o.reply, nil
	case <-ctx.Done():
		p.interrupt()
		<-done
		p.kill()
		return nil, p.explain(context.Cause(ctx), nil)
	}
}

func (p *process) exchange(line []byte) ([]byte, error) {
	if _, err := p.stdin.Write(line); err != nil {
		return nil, errEnded
	}
	reply, err := p.lines.ReadSlice('\n')
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("answer is longer than %d bytes", maxAnswer)
	case len(reply) == 0:
		return nil, errEnded
	default:
		return nil, fmt.Errorf("program ended within its answer %q", oneLine(reply))
	}
}

// explain adds how the process ended and what it last said to err.
func (p *process) explain(err, ended error) error {
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
func (p *process) interrupt() {
	killGroup(p.cmd)
	// Errors are those of a process that is gone already.
	_ = p.stdin.Close()
	_ = p.stdout.Close()
}

// kill ends the process and waits for it.
func (p *process) kill() {
	p.interrupt()
	_ = p.cmd.Wait() // reports the signal
}

// reap waits for a process that has closed its output, and returns how it ended.
func (p *process) reap() error {
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
	return oneLine(text[bytes.LastIndexByte(text, '\n')+1:])
}

// oneLine is the beginning of b, on one line.
func oneLine(b []byte) string {
	text := string(bytes.Join(bytes.Fields(b[:min(len(b), maxQuote)]), []byte(" ")))
	if len(b) > maxQuote {
		text += "…"
	}
	return text
}

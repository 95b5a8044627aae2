package torch

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/easyrl/easyrl/torch/fake"
)

// pipes is a listener in memory, so that a test's clock is synctest's.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7000} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stage is a session in a test's bubble.
type stage struct {
	*Session
	warnings []string
	ranks    *fake.Ranks
	pipes    *pipes
	end      func()
}

// play opens a session with ranks in memory. The caller ends it.
func play(t *testing.T, cfg Config, ranks *fake.Ranks) (*stage, error) {
	t.Helper()
	st := &stage{ranks: ranks, pipes: newPipes()}
	cfg.Warn = func(format string, args ...any) { st.warnings = append(st.warnings, fmt.Sprintf(format, args...)) }
	ranks.Token, ranks.Dial = cfg.Token, st.pipes.dial
	if ranks.World == 0 {
		ranks.World = max(1, cfg.DP) * max(1, cfg.TP)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ranks.Run(ctx) })
	var err error
	st.Session, err = open(t.Context(), cfg, st.pipes)
	st.end = func() {
		if st.Session != nil {
			st.Close()
		}
		cancel()
		running.Wait()
	}
	return st, err
}

// once fails at one moment of the first start.
func once(fault fake.Fault, rank int, kind string, count int) func(fake.Moment) fake.Fault {
	var mu sync.Mutex
	return func(at fake.Moment) fake.Fault {
		mu.Lock()
		defer mu.Unlock()
		if at.Rank == rank && at.Kind == kind {
			if count--; count == 0 {
				return fault
			}
		}
		return fake.None
	}
}

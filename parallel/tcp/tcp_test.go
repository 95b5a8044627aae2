package tcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/porttest"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/paralleltest"
)

const secret = "a token of tests that is long"

// notes collects warnings.
type notes struct {
	mu    sync.Mutex
	lines []string
	came  chan struct{}
}

func newNotes() *notes { return &notes{came: make(chan struct{}, 1000)} }

func (n *notes) warn(format string, args ...any) {
	n.mu.Lock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
	n.mu.Unlock()
	n.came <- struct{}{}
}

// all returns the warnings so far.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// wait returns when a warning contains text.
func (n *notes) wait(text string) {
	for {
		n.mu.Lock()
		found := strings.Contains(strings.Join(n.lines, "\n"), text)
		n.mu.Unlock()
		if found {
			return
		}
		<-n.came
	}
}

// openWith returns the transports of n ranks. change may alter their configurations.
func openWith(t testing.TB, n int, change func(*Config)) []parallel.Transport {
	t.Helper()
	world, errs := make([]parallel.Transport, n), make([]error, n)
	master := porttest.Address(t)
	var joining sync.WaitGroup
	for i := range n {
		joining.Go(func() {
			cfg := Config{Rank: i, Size: n, Master: master, Token: []byte(secret), Run: t.Name(), Join: time.Minute}
			if change != nil {
				change(&cfg)
			}
			w, err := Open(context.Background(), cfg)
			if err == nil {
				world[i] = w
			}
			errs[i] = err
		})
	}
	joining.Wait()
	for i, err := range errs {
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, world[i].Close()) })
	}
	return world
}

func open(t testing.TB, n int) []parallel.Transport { return openWith(t, n, nil) }

func TestConformance(t *testing.T) {
	t.Parallel()
	paralleltest.Run(t, open)
}

func TestHang(t *testing.T) {
	t.Parallel()
	world := openWith(t, 4, func(c *Config) { c.Silence = 5 * time.Second })
	paralleltest.Hang(t, world, 6*time.Second)
}

// deadline returns a time that a test does not reach.
func deadline(t *testing.T) time.Time {
	t.Helper()
	if at, ok := t.Deadline(); ok {
		return at
	}
	return time.Now().Add(time.Hour)
}

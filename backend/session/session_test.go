package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
	"github.com/easyrl/easyrl/optim"
)

// machine is the state of ranks: a history of what has changed their weights. It is a sum of replicas' gradients
// that keeps their order, as floating-point sums do.
type machine struct {
	history []string
	sums    []string // by replica: gradients since the last update
}

// ranks are fake ranks that answer when they are asked. They fail at one of their calls.
type ranks struct {
	machine
	f       *fixture
	left    int // calls until a rank fails; never if it begins at 0
	pending []Answer
	closed  bool
}

func (r *ranks) call() error {
	if r.left--; r.left == 0 {
		return &Fault{"rank 1", errors.New("is gone")}
	}
	return nil
}

func (r *ranks) Forward(replica int, id int64, l *attention.Layout, _ int64) error {
	out := &backend.Outputs{Values: backend.Values{backend.Policy: make([]float32, len(l.Targets))}}
	for i := range out.Values[backend.Policy] {
		out.Values[backend.Policy][i] = float32(len(r.history))
	}
	r.pending = append(r.pending, Answer{replica, id, out})
	return r.call()
}

func (r *ranks) Backward(replica int, id int64, gradient []float32) error {
	r.sums[replica] += fmt.Sprint(gradient)
	r.pending = append(r.pending, Answer{Replica: replica, ID: id})
	return r.call()
}

func (r *ranks) Receive(context.Context) (Answer, error) {
	// Replicas answer in any order, each one in that of its messages.
	i := r.f.random.IntN(len(r.pending))
	i = slices.IndexFunc(r.pending, func(a Answer) bool { return a.Replica == r.pending[i].Replica })
	a := r.pending[i]
	r.pending = slices.Delete(r.pending, i, i+1)
	return a, r.call()
}

func (r *ranks) Poll() (a Answer, found bool, err error) {
	if len(r.pending) == 0 || r.f.random.IntN(2) == 0 {
		return a, false, nil
	}
	a, err = r.Receive(context.Background())
	return a, true, err
}

func (r *ranks) Discard() error {
	r.pending = nil
	clear(r.sums)
	return r.call()
}

func (r *ranks) Step(_ context.Context, u backend.Update) (out Outcome, err error) {
	if u.Scale == 0 {
		out.Skipped = optim.ErrNonFinite
	} else {
		r.history = append(r.history, fmt.Sprint(u.Number, r.sums))
	}
	clear(r.sums)
	return out, r.call()
}

func (r *ranks) Deadline() time.Time     { return time.Time{} }
func (r *ranks) Diagnose(f *Fault) error { return f }
func (r *ranks) Close()                  { r.closed = true }

// fixture starts ranks, the first ones with faults.
type fixture struct {
	random   *rand.Rand
	faults   []int // ranks.left by start
	starts   int
	points   map[string][]string // histories by folder
	warnings []string
}

func (f *fixture) start(ctx context.Context, from Point) (*ranks, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &ranks{machine: machine{slices.Clone(f.points[from.Folder]), make([]string, 2)}, f: f}
	if f.starts < len(f.faults) {
		r.left = f.faults[f.starts]
	}
	f.starts++
	return r, nil
}

func (f *fixture) open(t *testing.T) *Session[*ranks] {
	t.Helper()
	s := New(Config[*ranks]{
		Name: "fake", Start: f.start, How: "restarting", Depth: 2, Folder: filepath.Join(t.TempDir(), "points"),
		Plan: func(depth int) schedule.Plan { return schedule.New(2, depth, false) },
		Warn: func(format string, args ...any) { f.warnings = append(f.warnings, fmt.Sprintf(format, args...)) },
	})
	require.NoError(t, s.Open(t.Context(), func(error) bool { return false }))
	t.Cleanup(s.Close)
	return s
}

func layout(rows int) *attention.Layout {
	l := &attention.Layout{}
	l.Add(-1, make([]int32, rows), true)
	return l
}

// train makes updates with marks between them, with a recovery point after every third, and returns what
// derive has been called with. Each derive's gradient is unique.
func train(t *testing.T, s *Session[*ranks], f *fixture, updates int) (derived []float32) {
	t.Helper()
	ctx := t.Context()
	for n := 1; n <= updates; n++ {
		mark := func(_ context.Context, r *ranks) error {
			r.history = append(r.history, fmt.Sprint("mark ", n))
			return r.call()
		}
		require.NoError(t, s.Do(ctx, mark))
		for i := range 7 {
			rows := 2 + (n*i)%5
			require.NoError(t, s.Pass(ctx, layout(rows), 0, func(out backend.Outputs) (backend.Values, error) {
				gradient := make([]float32, rows-1)
				gradient[0] = float32(100*n + i)
				derived = append(derived, gradient[0], out.Values[backend.Policy][0])
				return backend.Values{backend.Policy: gradient}, nil
			}))
		}
		_, err := s.Step(ctx, backend.Update{Number: n, Scale: 1})
		require.NoError(t, err)
		if n%3 > 0 {
			continue
		}
		folder, err := s.NewFolder()
		require.NoError(t, err)
		last := s.Point()
		require.NoError(t, s.Attempt(ctx, func(r *ranks) error {
			f.points[folder] = slices.Clone(r.history)
			return r.call()
		}))
		require.NoError(t, s.Advance(s.Now(), Point{Folder: folder, Updates: n, Own: true}))
		require.Zero(t, s.Kept())
		if last.Own {
			require.NoDirExists(t, last.Folder)
		}
	}
	return derived
}

// Whatever call fails, replaced ranks repeat the same sums in the same order, and each derive is called once.
func TestReplay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		f := &fixture{random: rand.New(rand.NewPCG(seed, 1)), points: map[string][]string{}}
		for range f.random.IntN(4) {
			f.faults = append(f.faults, 1+f.random.IntN(200))
		}
		s := f.open(t)
		const updates = 8
		derived := train(t, s, f, updates)
		require.Len(t, derived, 2*7*updates)
		require.Len(t, f.warnings, f.starts-1)
		history := s.Current().history
		require.Len(t, history, 2*updates)
		// Ranks that repeat everything have the same history.
		s.Drop()
		require.NoError(t, s.Flush(t.Context()))
		require.Equal(t, history, s.Current().history)
		require.Len(t, derived, 2*7*updates)
	}
}

// Three restarts without an update are repeated, a fourth ends the session.
func TestTooManyRestarts(t *testing.T) {
	t.Parallel()
	f := &fixture{random: rand.New(rand.NewPCG(1, 1)), faults: []int{30, 1, 1, 1, 1}, points: map[string][]string{}}
	s := f.open(t)
	var err error
	for n := 1; err == nil; n++ {
		if err = s.Pass(t.Context(), layout(3), 0, func(backend.Outputs) (backend.Values, error) {
			return backend.Values{backend.Policy: make([]float32, 2)}, nil
		}); err == nil {
			_, err = s.Step(t.Context(), backend.Update{Number: n, Scale: 1})
		}
	}
	require.Regexp(t, "^fake: rank 1: is gone; restarted 3 times since update [0-9]+$", err.Error())
	require.Len(t, f.warnings, 3)
	require.Regexp(t, `^rank 1: is gone; restarting, from update 0 \(1 of 3\)$`, f.warnings[0])
	require.Equal(t, err, s.Flush(t.Context()))
	<-s.Ended()
}

// After a call that could start no ranks, Ready says that Poll can.
func TestReadyWithoutRanks(t *testing.T) {
	t.Parallel()
	f := &fixture{random: rand.New(rand.NewPCG(3, 1))}
	s := f.open(t)
	s.Drop()
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, s.Poll(ended), context.Canceled)
	require.Len(t, s.Ready(), 1)
	<-s.Ready()
	require.NoError(t, s.Poll(t.Context()))
	require.NotNil(t, s.Current())
	require.Empty(t, s.Ready())
}

// Skipped updates are no part of the log, nor is discarded work. Ranks that are never replaced have none.
func TestLog(t *testing.T) {
	t.Parallel()
	f := &fixture{random: rand.New(rand.NewPCG(2, 1)), points: map[string][]string{}}
	s := f.open(t)
	pass := func(value float32) error {
		return s.Pass(t.Context(), layout(2), 0, func(backend.Outputs) (backend.Values, error) {
			return backend.Values{backend.Policy: {value}}, nil
		})
	}
	require.NoError(t, pass(1))
	_, err := s.Step(t.Context(), backend.Update{Number: 1})
	require.ErrorIs(t, err, optim.ErrNonFinite)
	require.NoError(t, pass(2))
	s.Discard()
	require.NoError(t, pass(3))
	_, err = s.Step(t.Context(), backend.Update{Number: 1, Scale: 1})
	require.NoError(t, err)
	require.Equal(t, 1, s.Kept())
	want := []string{"1 [[3] ]"}
	require.Equal(t, want, s.Current().history)
	s.Drop()
	require.NoError(t, s.Flush(t.Context()))
	require.Equal(t, want, s.Current().history)
	s.cfg.Folder = ""
	_, err = s.Step(t.Context(), backend.Update{Number: 2, Scale: 1})
	require.NoError(t, err)
	require.Equal(t, 1, s.Kept())
}

// An error of Start that is no fault ends the session.
func TestStartFails(t *testing.T) {
	t.Parallel()
	f := &fixture{random: rand.New(rand.NewPCG(3, 1)), points: map[string][]string{}}
	s := f.open(t)
	s.Drop()
	refused := errors.New("refused")
	cancelled, cancel := context.WithCancel(t.Context())
	s.cfg.Start = func(ctx context.Context, _ Point) (*ranks, error) {
		return nil, errors.Join(refused, ctx.Err())
	}
	cancel()
	require.ErrorIs(t, s.Flush(cancelled), context.Canceled)
	require.EqualError(t, s.Flush(t.Context()), "fake: refused")
	require.EqualError(t, s.Poll(t.Context()), "fake: refused")
}

// CopyTree copies folders within folders.
func TestCopyTree(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	require.NoError(t, os.MkdirAll(filepath.Join(from, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "a", "b", "c"), []byte("text"), 0o600))
	require.NoError(t, CopyTree(to, from))
	text, err := os.ReadFile(filepath.Join(to, "a", "b", "c"))
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
}

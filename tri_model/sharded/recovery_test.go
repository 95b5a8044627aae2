package sharded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
)

// mortal is the transport of a rank whose process dies at one of its calls: it then leaves without a word.
type mortal struct {
	parallel.Transport
	left atomic.Int64 // calls until it dies; never if it begins at 0
	dead atomic.Bool
}

func (d *mortal) call() {
	if d.left.Add(-1) == 0 {
		d.dead.Store(true)
		_ = d.Close()
	}
}

func (d *mortal) Send(ctx context.Context, e parallel.Envelope, data []byte) error {
	d.call()
	return d.Transport.Send(ctx, e, data)
}

func (d *mortal) Recv(ctx context.Context, e parallel.Envelope, into []byte) error {
	d.call()
	return d.Transport.Recv(ctx, e, into)
}

func (d *mortal) Abort(err error) {
	if !d.dead.Load() {
		d.Transport.Abort(err)
	}
}

// death says which rank of a world dies at which of its calls.
type death struct{ rank, call int }

// worlds opens one world after another. Each rank but 0 follows as if it ran in a process of its own.
type worlds struct {
	t         *testing.T
	size      int
	deaths    []death // of the first worlds; later ones live
	opened    int
	died      int // deaths that have happened
	ranks     []*mortal
	devices   []npu.Device
	followers conc.WaitGroup
}

func (w *worlds) open(context.Context) (parallel.Transport, error) {
	w.end()
	ends := parallel.NewLocal(w.size)
	w.ranks = nil
	for i, end := range ends[1:] {
		m := &mortal{Transport: end}
		w.ranks = append(w.ranks, m)
		if w.opened < len(w.deaths) && w.deaths[w.opened].rank == i+1 {
			m.left.Store(int64(w.deaths[w.opened].call))
		}
		dev := w.devices[i+1]
		w.followers.Go(func() { _ = Follow(context.Background(), dev, m, trace.Track{}) })
	}
	w.opened++
	return ends[0], nil
}

// end waits until the ranks of the last world have ended.
func (w *worlds) end() {
	w.followers.Wait()
	for _, r := range w.ranks {
		if r.dead.Load() {
			w.died++
		}
	}
	w.ranks = nil
}

// hashWhile writes a checkpoint while other calls replace lost ranks, and returns its hash.
func hashWhile(t *testing.T, m *Models, write func(string) error, during func()) string {
	t.Helper()
	dir := t.TempDir()
	done := make(chan error, 1)
	var writing conc.WaitGroup
	writing.Go(func() { done <- write(dir) })
	defer writing.Wait()
	during()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			return hashOf(t, dir)
		case <-m.Ready():
			require.NoError(t, m.Poll(t.Context()))
		}
	}
}

// linearSums returns the linear sums of the last update of a number of micro-batches. Those of the micro-batches add up
// to those of all ranks' sums of gradients.
func linearSums(t *testing.T, m *Models, micros int) string {
	t.Helper()
	sums := m.LinearSums()
	require.Len(t, sums.Passes, micros)
	total := make([]uint64, len(sums.Total))
	for _, pass := range sums.Passes {
		for i, v := range pass {
			total[i] += v
		}
	}
	require.Equal(t, total, sums.Total)
	return fmt.Sprint(sums)
}

// live trains and returns hashes of each published version, of two checkpoints and of linear sums. It calls each
// derive once. Step 4 trains nothing, and step 7 skips its updates.
func live(t *testing.T, m *Models, c *model.Config, steps int) (hashes []string) {
	t.Helper()
	derived := 0
	step := func(n int) {
		w, err := m.Publish(t.Context(), int64(n))
		require.NoError(t, err)
		hashes = append(hashes, readVersion(t, m, w))
		for range 2 { // minibatches
			if n == 4 {
				break
			}
			for _, l := range layouts(c, uint64(n), 5) {
				require.NoError(t, m.Pass(t.Context(), l, int64(n), func(out backend.Outputs) (backend.Values, error) {
					derived++
					gradient := make([]float32, len(out.Values[backend.Policy]))
					for i, p := range out.Values[backend.Policy] {
						gradient[i] = p + 0.5*out.Values[backend.OldPolicy][i] + out.Values[backend.Reference][i]/4
					}
					if n == 7 {
						gradient[0] = float32(math.Inf(1))
					}
					return backend.Values{backend.Policy: gradient}, nil
				}))
			}
			_, err = m.Step(t.Context(), backend.Update{Number: m.Updates() + 1, Scale: 1.0 / 64, LR: 1e-3, Clip: 0.5})
			require.Equal(t, n == 7, errors.Is(err, optim.ErrNonFinite), err)
			hashes = append(hashes, linearSums(t, m, 5))
		}
	}
	for n := 1; n < steps; n++ {
		step(n)
	}
	write, err := m.Capture(t.Context(), steps-1)
	require.NoError(t, err)
	middle := hashWhile(t, m, write, func() { step(steps) })
	write, err = m.Capture(t.Context(), steps)
	require.NoError(t, err)
	require.Equal(t, 10*(steps-1), derived)
	return append(hashes, middle, hashWhile(t, m, write, func() {}))
}

// readVersion reads a version until it succeeds, as the fleet does, while other calls replace lost ranks.
func readVersion(t *testing.T, m *Models, w inference.Weights) string {
	t.Helper()
	for {
		var text strings.Builder
		err := w.(*version).WriteSafetensors(&text)
		if err == nil {
			return fmt.Sprint(w.Checksum(), len(text.String()))
		}
		var lost *parallel.RankError
		require.ErrorAs(t, err, &lost)
		require.NoError(t, m.Poll(t.Context()))
	}
}

// Ranks die at any of their calls, also while others are being replaced, and the bits stay.
func TestLostRanksKeepBits(t *testing.T) {
	t.Parallel()
	c, cfg := shapes()["llama"], config()
	cfg.OldPolicy = loss.PreviousStep
	cfg.Reference = true
	cfg.LinearSums = true
	const steps = 8
	seeds := uint64(2)
	if soak.Long() {
		seeds = 40
	}
	for _, own := range []Config{
		{Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}},
		{Mesh: parallel.Mesh{DP: 1, TP: 1, PP: 3}},
		{Mesh: parallel.Mesh{DP: 2, TP: 2, PP: 1}, Zero: 2, Sequence: true},
		{Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 2}},
	} {
		t.Run(own.Mesh.String(), func(t *testing.T) {
			t.Parallel()
			own.Models = cfg
			run := func(t *testing.T, deaths ...death) (hashes []string, died int, warnings []string) {
				t.Helper()
				w := &worlds{t: t, size: own.Mesh.Size(), deaths: deaths}
				for range w.size {
					w.devices = append(w.devices, openCPU(t, 1))
				}
				defer w.end()
				own := own
				own.Rejoin, own.Recovery = w.open, t.TempDir()
				own.Canary = []int32{1, 2, 3}
				var mu sync.Mutex
				own.Warn = func(format string, args ...any) {
					mu.Lock()
					defer mu.Unlock()
					warnings = append(warnings, fmt.Sprintf(format, args...))
				}
				end, err := w.open(t.Context())
				require.NoError(t, err)
				m, err := New(t.Context(), w.devices[0], c, drawn(c), own, []parallel.Transport{end}, 1)
				require.NoError(t, err)
				hashes = live(t, m, c, steps)
				m.End(false)
				m.Close()
				w.end()
				return hashes, w.died, warnings
			}
			want, died, warnings := run(t)
			require.Zero(t, died)
			require.Empty(t, warnings)
			total := 0
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 4))
				var deaths []death
				for range 1 + rng.IntN(3) {
					deaths = append(deaths, death{1 + rng.IntN(own.Mesh.Size()-1), 1 + rng.IntN(2000)})
				}
				got, died, warnings := run(t, deaths...)
				require.Equal(t, want, got, "%v", deaths)
				require.LessOrEqual(t, len(warnings), died, "%v", deaths) // a rank may die when the run has ended
				for _, text := range warnings {
					require.Regexp(t, `rank [1-3]: .*; waiting for all ranks to join again, from update [0-9]+ `+
						`\([123] of 3\)$`, text)
				}
				total += len(warnings)
			}
			require.Positive(t, total)
		})
	}
}

// asked is a transport that calls a function when it is first asked for its size, as a world does when it connects.
type asked struct {
	parallel.Transport
	ask func()
}

func (a asked) Size() int {
	a.ask()
	return a.Transport.Size()
}

// openReplicas returns models on two replicas, of which the second dies as deaths say and is replaced. rejoined, if it
// is not nil, wraps rank 0's transport of each world but the first.
func openReplicas(
	t *testing.T, c *model.Config, rejoined func(parallel.Transport) parallel.Transport, deaths ...death,
) (*Models, *worlds) {
	t.Helper()
	w := &worlds{t: t, size: 2, deaths: deaths, devices: []npu.Device{openCPU(t, 1), openCPU(t, 1)}}
	t.Cleanup(w.end)
	own := Config{Mesh: parallel.Mesh{DP: 2, TP: 1, PP: 1}, Models: config(), Recovery: t.TempDir(),
		Warn: func(string, ...any) {}}
	own.Rejoin = func(ctx context.Context) (parallel.Transport, error) {
		end, err := w.open(ctx)
		if rejoined != nil {
			end = rejoined(end)
		}
		return end, err
	}
	end, err := w.open(t.Context())
	require.NoError(t, err)
	m, err := New(t.Context(), w.devices[0], c, drawn(c), own, []parallel.Transport{end}, 1)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m, w
}

// A version can be read at any moment while lost ranks are being replaced. Reading fails until they are.
func TestVersionsAreReadWhileRanksJoin(t *testing.T) {
	t.Parallel()
	var read inference.Weights
	var during error
	m, w := openReplicas(t, shapes()["llama"], func(end parallel.Transport) parallel.Transport {
		return asked{end, sync.OnceFunc(func() { during = read.(*version).WriteSafetensors(io.Discard) })}
	})
	var err error
	read, err = m.Publish(t.Context(), 1)
	require.NoError(t, err)
	w.ranks[0].left.Store(1)
	_, err = m.Publish(t.Context(), 2)
	require.NoError(t, err)
	require.ErrorAs(t, during, new(*parallel.RankError))
	require.NoError(t, read.(*version).WriteSafetensors(io.Discard))
}

// Without published versions, as for demonstrations, recovery points also follow each other: few folders remain, and
// replaced ranks repeat few updates.
func TestRecoveryPointsWithoutVersions(t *testing.T) {
	t.Parallel()
	c := shapes()["llama"]
	m, _ := openReplicas(t, c, nil)
	for n := 1; n <= 2*session.RecoveryEvery+1; n++ {
		for _, l := range layouts(c, uint64(n), 1) {
			require.NoError(t, m.Pass(t.Context(), l, 0, func(out backend.Outputs) (backend.Values, error) {
				return backend.Values{backend.Policy: out.Values[backend.Policy]}, nil
			}))
		}
		_, err := m.Step(t.Context(), backend.Update{Number: n, Scale: 1.0 / 64, LR: 1e-3, Clip: 0.5})
		require.NoError(t, err)
		m.writing.Wait() // as if the disk were fast
	}
	require.Equal(t, 2*session.RecoveryEvery, m.Point().Updates)
	folders, err := os.ReadDir(m.cfg.Recovery)
	require.NoError(t, err)
	require.Len(t, folders, 1)
}

// Ranks that are lost before the first world holds the starting weights are replaced, too.
func TestLostRanksOfFirstWorld(t *testing.T) {
	t.Parallel()
	c := shapes()["llama"]
	for call := 1; call < 40; call += 3 {
		m, w := openReplicas(t, c, nil, death{1, call}, death{1, call + 1})
		_, err := m.Publish(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, 3, w.opened, "call %d", call)
	}
}

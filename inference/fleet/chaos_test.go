package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// Faults of an instance.
const (
	killed  = iota + 1 // ends all calls; returns later with base weights
	stopped            // as by SIGSTOP: neither answers nor fails
	keeps              // accepts an update and serves the old weights
	rebased            // restarted with base weights, and reports it
	masked             // has other weights of the requested version, and reports it
	late               // answers from an old version
	drips              // never finishes
	nan                // returns NaN log-probabilities
	doubles            // returns a response twice
	fails500
	faultKinds
)

// chaosInstance is an instance under a schedule of faults. Its tokens depend only on its
// weights, the seed and the prompt.
type chaosInstance struct {
	id string

	mu      sync.Mutex
	fault   int
	version int64
	life    context.Context // ends with the process
	end     context.CancelFunc
	changed chan struct{} // closed when fault changes
	met     [faultKinds]int
}

func newChaosInstance(id string) *chaosInstance {
	i := &chaosInstance{id: id, changed: make(chan struct{})}
	i.restart()
	return i
}

// restart starts the process with base weights. i is locked or not shared yet.
func (i *chaosInstance) restart() {
	if i.end != nil {
		i.end()
	}
	i.life, i.end = context.WithCancel(context.Background())
	i.version = 0
}

// set gives i the fault kind.
func (i *chaosInstance) set(kind int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if kind == killed || kind == rebased || kind == masked {
		i.restart()
	}
	i.fault = kind
	close(i.changed)
	i.changed = make(chan struct{})
}

// up sleeps for d, and while the process is stopped, and returns the fault and version at
// the end. It fails if the process or ctx ends.
func (i *chaosInstance) up(ctx context.Context, d time.Duration) (fault int, version int64, err error) {
	i.mu.Lock()
	life := i.life
	i.mu.Unlock()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-life.Done():
	}
	for {
		i.mu.Lock()
		fault, version, changed := i.fault, i.version, i.changed
		if fault != 0 {
			i.met[fault]++
		}
		i.mu.Unlock()
		switch {
		case life.Err() != nil || fault == killed:
			return 0, 0, errors.New("connection reset by peer")
		case fault != stopped:
			return fault, version, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

func (i *chaosInstance) ID() string    { return i.id }
func (i *chaosInstance) Capacity() int { return 8 }

func (i *chaosInstance) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.end()
	return nil
}

func (i *chaosInstance) Probe(ctx context.Context) error {
	_, _, err := i.up(ctx, 0)
	return err
}

func (i *chaosInstance) Publish(ctx context.Context, w inference.Weights) (string, error) {
	fault, version, err := i.up(ctx, time.Second)
	if err != nil {
		return "", err
	}
	if fault == keeps {
		return fakeWeights(version).Checksum(), nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = w.Version()
	return w.Checksum(), nil
}

func (i *chaosInstance) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	fault, version, err := i.up(ctx, time.Duration(1+req.Seed%7)*time.Second)
	if err != nil {
		return nil, err
	}
	out := chaosAnswer(req, version)
	switch fault {
	case masked:
		for j := range out {
			out[j].Version = req.Version
		}
	case late:
		out = chaosAnswer(req, version-1)
	case drips:
		<-ctx.Done()
		return nil, ctx.Err()
	case nan:
		out[len(out)-1].Logprobs[1] = float32(math.NaN())
	case doubles:
		out = append(out, out[0])
	case fails500:
		return nil, errors.New("500 Internal Server Error")
	}
	return out, nil
}

// chaosAnswer returns the answer of a version's weights.
func chaosAnswer(req inference.Request, version int64) []inference.Completion {
	out := make([]inference.Completion, req.N)
	for j := range out {
		rng := rand.New(rand.NewPCG(req.Seed^uint64(version)<<32, uint64(req.PromptIDs[0])<<8|uint64(j)))
		c := inference.Completion{Version: version, Checksum: fakeWeights(version).Checksum()}
		for range 4 {
			c.IDs = append(c.IDs, rng.Int32())
			c.Logprobs = append(c.Logprobs, -rng.Float32())
		}
		out[j] = c
	}
	return out
}

const chaosPeriods, chaosPrompts = 3, 24

// chaosRun samples all steps with f and returns a hash of all answers in prompt order.
func chaosRun(t *testing.T, f *Fleet) [sha256.Size]byte {
	t.Helper()
	h := sha256.New()
	for version := int64(1); version <= chaosPeriods; version++ {
		require.NoError(t, f.Publish(t.Context(), fakeWeights(version)))
		var answers [chaosPrompts][][]inference.Completion
		var mu sync.Mutex
		var wg sync.WaitGroup
		for p := range answers {
			wg.Go(func() {
				req := request(2, version)
				req.PromptIDs, req.Seed = []int32{int32(p)}, uint64(version)*1000+uint64(p)
				out, id, err := f.Generate(t.Context(), req)
				require.NoError(t, err)
				require.NotEmpty(t, id)
				mu.Lock()
				answers[p] = append(answers[p], out)
				mu.Unlock()
			})
		}
		wg.Wait()
		for p, got := range answers {
			require.Len(t, got, 1)
			for _, c := range got[0] {
				require.Equal(t, version, c.Version)
				_, _ = fmt.Fprintln(h, version, p, c.IDs, c.Logprobs)
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// chaosSchedule injects faults into each instance at random times until ctx ends. One
// instance joins and one leaves.
func chaosSchedule(ctx context.Context, wg *sync.WaitGroup, rng *rand.Rand, instances []*chaosInstance) {
	for _, i := range instances {
		mine := rand.New(rand.NewPCG(rng.Uint64(), 1))
		wg.Go(func() {
			defer i.set(0)
			for range 1 + mine.IntN(4) {
				wait, kind, lasts := mine.IntN(20), 1+mine.IntN(faultKinds-1), 1+mine.IntN(90)
				if sleep(ctx, time.Duration(wait)*time.Second) != nil {
					return
				}
				i.set(kind)
				if sleep(ctx, time.Duration(lasts)*time.Second) != nil {
					return
				}
				i.set(0)
			}
		})
	}
}

// Whatever happens to the instances, each prompt is answered once, by the current weights,
// exactly as without faults.
func TestUnderChaos(t *testing.T) {
	t.Parallel()
	config := func() Config {
		cfg := DefaultConfig()
		cfg.Attempts, cfg.MaxRestarts = 100, 1000
		cfg.CallTimeout, cfg.PublishTimeout, cfg.EmptyWait, cfg.Watchdog = 30*time.Second, 30*time.Second,
			time.Hour, 2*time.Hour
		return cfg
	}
	var want [sha256.Size]byte
	synctest.Test(t, func(t *testing.T) {
		f, err := New(config())
		require.NoError(t, err)
		require.NoError(t, f.Add(t.Context(), newChaosInstance("calm")))
		want = chaosRun(t, f)
		require.NoError(t, f.Close())
	})
	var met [faultKinds]int
	var faults, silent int64
	for seed := range uint64(schedules) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			cfg := config()
			cfg.Notify = func(e Event) {
				if e.Err != nil && strings.Contains(e.Err.Error(), "no sign of work") {
					silent++
				}
			}
			f, err := New(cfg)
			require.NoError(t, err)
			instances := []*chaosInstance{newChaosInstance("a"), newChaosInstance("b"), newChaosInstance("c"),
				newChaosInstance("d")}
			for _, i := range instances[:3] {
				require.NoError(t, f.Add(t.Context(), i))
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			chaosSchedule(ctx, &wg, rng, instances)
			wg.Go(func() {
				if sleep(ctx, time.Duration(1+rng.IntN(60))*time.Second) == nil {
					_ = f.Add(ctx, instances[3]) // may fail by schedule; then the fleet probes it
				}
				if sleep(ctx, time.Duration(1+rng.IntN(60))*time.Second) == nil {
					_ = f.Remove(ctx, instances[0])
				}
			})
			require.Equal(t, want, chaosRun(t, f), "schedule %d", seed)
			cancel()
			wg.Wait()
			synctest.Wait()
			s := f.Status()
			require.Zero(t, s.Queued)
			require.Zero(t, s.Invalid, "an instance's fault never makes a request invalid")
			for _, i := range s.Instances {
				require.Zero(t, i.Requests, "schedule %d: %s still holds a request", seed, i.ID)
				faults += i.Failed
			}
			require.NoError(t, f.Close())
			for _, i := range instances {
				i.end()
				for kind, n := range i.met {
					met[kind] += n
				}
			}
		})
	}
	for kind := 1; kind < faultKinds; kind++ {
		require.Positive(t, met[kind], "no call met fault %d", kind)
	}
	require.Greater(t, faults, int64(schedules))
	require.Positive(t, silent)
	t.Logf("%d faults of instances, %d times silent, calls that met each kind: %v", faults, silent, met[1:])
}

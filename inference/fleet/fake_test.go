package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// fakeWeights are weights that consist of a version only.
type fakeWeights int64

func (w fakeWeights) Version() int64 { return int64(w) }

func (w fakeWeights) Checksum() string { return fmt.Sprintf("sum-%d", int64(w)) }

func (w fakeWeights) WriteSafetensors(io.Writer) error { return errors.New("no values") }

// fakeInstance answers each request after the duration takes, unless generate is set.
type fakeInstance struct {
	id       string
	capacity int
	takes    time.Duration
	generate func(ctx context.Context, req inference.Request) ([]inference.Completion, error)
	publish  func(ctx context.Context, w inference.Weights) (string, error)

	mu      sync.Mutex
	running int
	record
}

// record is what a fake instance holds and has received so far.
type record struct {
	version   int64
	calls     int
	most      int // responses at once
	published []int64
	closed    bool
}

// seen returns a copy of i's record, which the fleet's calls write.
func (i *fakeInstance) seen() record {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record
}

// fake returns an instance that takes a second for each request.
func fake(id string, capacity int) *fakeInstance {
	return &fakeInstance{id: id, capacity: capacity, takes: time.Second}
}

// faulty returns an instance that calls generate for each request.
func faulty(id string, capacity int, generate func(context.Context, inference.Request) (
	[]inference.Completion, error)) *fakeInstance {
	return &fakeInstance{id: id, capacity: capacity, generate: generate}
}

func (i *fakeInstance) ID() string { return i.id }

func (i *fakeInstance) Capacity() int { return i.capacity }

func (i *fakeInstance) Close() error { i.now(func() { i.closed = true }); return nil }

func (i *fakeInstance) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	i.mu.Lock()
	i.calls++
	i.running += req.N
	i.most = max(i.most, i.running)
	generate := i.generate
	i.mu.Unlock()
	defer func() { i.mu.Lock(); i.running -= req.N; i.mu.Unlock() }()
	if generate != nil {
		return generate(ctx, req)
	}
	if err := sleep(ctx, i.takes); err != nil {
		return nil, err
	}
	return i.answer(req), nil
}

func (i *fakeInstance) answer(req inference.Request) []inference.Completion {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := make([]inference.Completion, req.N)
	for j := range out {
		out[j] = inference.Completion{IDs: []int32{int32(req.Seed)}, Logprobs: []float32{-1}, Version: i.version}
	}
	return out
}

func (i *fakeInstance) Publish(ctx context.Context, w inference.Weights) (string, error) {
	i.mu.Lock()
	publish := i.publish
	i.mu.Unlock()
	if publish != nil {
		return publish(ctx, w)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = w.Version()
	i.published = append(i.published, i.version)
	return w.Checksum(), nil
}

// probedInstance is a fakeInstance that can be probed.
type probedInstance struct {
	fakeInstance
	probe  func(ctx context.Context) error
	probes int
}

// probed returns an instance that answers each probe.
func probed(id string, capacity int) *probedInstance {
	answers := func(context.Context) error { return nil }
	return &probedInstance{fakeInstance: fakeInstance{id: id, capacity: capacity, takes: time.Second}, probe: answers}
}

func (i *probedInstance) Probe(ctx context.Context) error {
	i.mu.Lock()
	i.probes++
	probe := i.probe
	i.mu.Unlock()
	return probe(ctx)
}

// counts returns the numbers of probes and publishes so far.
func (i *probedInstance) counts() (probes, published int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.probes, len(i.published)
}

// now changes i while it is in a fleet.
func (i *fakeInstance) now(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// pass lets the duration d pass and waits for all its effects.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	require.NoError(t, sleep(t.Context(), d))
	synctest.Wait()
}

func hang(ctx context.Context, _ inference.Request) ([]inference.Completion, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func fails(err error) func(context.Context, inference.Request) ([]inference.Completion, error) {
	return func(context.Context, inference.Request) ([]inference.Completion, error) { return nil, err }
}

// publishes returns a Publish that reports sum and err without taking the weights.
func publishes(sum string, err error) func(context.Context, inference.Weights) (string, error) {
	return func(context.Context, inference.Weights) (string, error) { return sum, err }
}

func request(n int, version int64) inference.Request {
	return inference.Request{PromptIDs: []int32{1}, N: n, Version: version,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 8}}
}

// newFleet returns a fleet of instances that hold version 1. Each test ends with its Close,
// after which synctest finds leaked goroutines.
func newFleet(t *testing.T, change func(*Config), instances ...inference.Instance) *Fleet {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	f, err := New(cfg)
	require.NoError(t, err)
	for _, i := range instances {
		require.NoError(t, f.Add(t.Context(), i))
	}
	if len(instances) > 0 {
		require.NoError(t, f.Publish(t.Context(), fakeWeights(1)))
	}
	return f
}

func states(f *Fleet) map[string]State {
	m := map[string]State{}
	for _, i := range f.Status().Instances {
		m[i.ID] = i.State
	}
	return m
}

// outcomes runs n requests at once and counts the answers of each instance.
func outcomes(t *testing.T, f *Fleet, n int, req inference.Request) map[string]int {
	t.Helper()
	return outcomesIn(t.Context(), t, f, n, req)
}

func outcomesIn(ctx context.Context, t *testing.T, f *Fleet, n int, req inference.Request) map[string]int {
	t.Helper()
	var mu sync.Mutex
	by := map[string]int{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := req
			r.Seed = uint64(i)
			out, id, err := f.Generate(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				by["error"]++
				return
			}
			if len(out) != r.N || out[0].IDs[0] != int32(i) {
				by["wrong"]++
			}
			by[id]++
		})
	}
	wg.Wait()
	return by
}

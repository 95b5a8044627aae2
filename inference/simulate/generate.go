package simulate

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/rollout"
)

// minTick is the minimum time between two Deltas of a response.
const minTick = 10 * time.Millisecond

// Generate returns req.N completions when the schedule has finished them. Errors wrap
// inference.ErrInvalid, inference.ErrStale or inference.ErrClosed, except those caused by
// Config.Failures and by the end of ctx, which returns ctx's cause.
func (i *Instance) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	g, err := i.begin(&req)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", i.cfg.ID, err)
	}
	var out []inference.Completion // nil until the first response ends
	for running := true; running; {
		select {
		case k := <-g.endings:
			if out == nil {
				out = i.completions(g)
				g.stamp(out)
			}
			req.Ended(k, out[k])
		case <-g.done:
			running = false
		case <-ctx.Done():
			i.cancel(g)
			return nil, context.Cause(ctx)
		}
	}
	if g.err != nil {
		return nil, fmt.Errorf("instance %s: %w", i.cfg.ID, g.err)
	}
	if out == nil {
		out = i.completions(g)
		g.stamp(out)
	}
	return out, nil
}

// Stream is Generate with incremental output: it emits new tokens every minTick, or each token
// separately if a token takes longer.
func (i *Instance) Stream(ctx context.Context, req inference.Request, emit func(inference.Delta)) (
	[]inference.Completion, error) {
	g, err := i.begin(&req)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", i.cfg.ID, err)
	}
	out := i.completions(g)
	sent := make([]int, req.N) // number of tokens emitted, per response
	send := func(counts []int) {
		for k, n := range counts {
			if c := &out[k]; n > sent[k] {
				emit(inference.Delta{Index: k, IDs: c.IDs[sent[k]:n:n], Logprobs: c.Logprobs[sent[k]:n:n],
					Version: g.version, Checksum: g.checksum})
				sent[k] = n
			}
		}
	}
	tick := time.NewTicker(max(minTick, time.Duration(float64(time.Second)/i.cfg.TokensPerSecond)))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			send(i.tokenCounts(g))
		case <-ctx.Done():
			i.cancel(g)
			return nil, context.Cause(ctx)
		case <-g.done:
			if g.err != nil {
				return nil, fmt.Errorf("instance %s: %w", i.cfg.ID, g.err)
			}
			send(g.lengths)
			g.stamp(out)
			return out, nil
		}
	}
}

// begin adds a request to the schedule.
func (i *Instance) begin(req *inference.Request) (*group, error) {
	g, err := i.newGroup(req)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() {
		return nil, inference.ErrClosed
	}
	if err := i.refuse(req.Version); err != nil {
		return nil, err
	}
	i.calls++
	draw := uniform(mix(req.Seed ^ mix(i.calls^hash([]byte(i.cfg.ID)))))
	g.fails = draw < i.cfg.Failures
	g.version, g.checksum = i.version, i.checksum
	i.s.runTo(i.clock.now())
	i.s.add(g)
	i.arm()
	return g, nil
}

// newGroup validates a request and draws the lengths of its responses.
func (i *Instance) newGroup(req *inference.Request) (*group, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	n := len(req.PromptIDs)
	switch {
	case n >= i.cfg.Context:
		return nil, fmt.Errorf("%w: prompt of %d tokens, expected fewer than the context of %d", inference.ErrInvalid,
			n, i.cfg.Context)
	case len(req.Sampling.Stop) > 0:
		return nil, fmt.Errorf("%w: stop strings need a tokenizer; a simulated instance has none", inference.ErrInvalid)
	case req.PromptLogprobs || req.TopLogprobs != 0:
		return nil, fmt.Errorf(
			"%w: a simulated instance cannot report log-probabilities of the prompt or of other tokens",
			inference.ErrInvalid)
	}
	var endings chan int
	if req.Ended != nil {
		endings = make(chan int, req.N) // room for all responses: schedule.end must not block
	}
	prompt := hashIDs(req.PromptIDs)
	limit := min(req.Sampling.MaxTokens, i.cfg.Context-n)
	g := &group{
		req: req, done: make(chan struct{}), endings: endings,
		seeds: make([]uint64, req.N), lengths: make([]int, req.N), stopped: make([]bool, req.N),
		spans: make([]time.Duration, req.N), starts: make([]time.Duration, 0, req.N),
	}
	if i.cfg.PrefillTokensPerSecond > 0 {
		g.prefill = duration(n, i.cfg.PrefillTokensPerSecond)
	}
	for k := range g.seeds {
		g.seeds[k] = mix(req.Seed ^ mix(prompt^mix(uint64(req.FirstIndex+k))))
		// The complement of the seed is a second seed, so that lengths and tokens are independent.
		length := i.cfg.Lengths.At(uniform(mix(^g.seeds[k])))
		g.lengths[k] = min(length, limit)
		g.stopped[k] = length <= limit
		g.spans[k] = duration(g.lengths[k], i.cfg.TokensPerSecond)
	}
	return g, nil
}

// duration returns the time that tokens take. It is at least a nanosecond, because a prefill of 0
// means that prompts take no time.
func duration(tokens int, perSecond float64) time.Duration {
	return max(1, time.Duration(float64(tokens)/perSecond*float64(time.Second)))
}

// cancel removes a request whose caller's context has ended.
func (i *Instance) cancel(g *group) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() {
		return
	}
	i.s.runTo(i.clock.now())
	i.s.drop(func(other *group) error {
		if other == g {
			return context.Canceled
		}
		return nil
	})
	i.arm()
}

// tokenCounts returns the current number of tokens of each response of g.
func (i *Instance) tokenCounts(g *group) []int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.s.runTo(i.clock.now())
	counts := make([]int, len(g.lengths))
	for k := range counts {
		counts[k] = i.s.tokens(g, k)
	}
	return counts
}

// stamp sets the version and checksum of completions. The request's prompt must have started.
func (g *group) stamp(out []inference.Completion) {
	for k := range out {
		out[k].Version, out[k].Checksum = g.version, g.checksum
	}
}

// completions returns the final completions of a request without version and checksum. The request
// need not be done, because tokens and lengths are drawn when it arrives.
func (i *Instance) completions(g *group) []inference.Completion {
	out := make([]inference.Completion, len(g.lengths))
	for k, n := range g.lengths {
		c := inference.Completion{IDs: make([]int32, n), Logprobs: make([]float32, n), Finish: rollout.Length}
		for p := range c.IDs {
			draw := splitmix.At(g.seeds[k], uint64(p)) >> 32
			c.IDs[p] = int32((draw * uint64(i.cfg.Vocab)) >> 32) // 0 to Vocab-1
			c.Logprobs[p] = Logprob
		}
		if g.stopped[k] {
			c.Finish = rollout.Stop
			if ids := g.req.Sampling.StopIDs; len(ids) > 0 {
				c.IDs[n-1] = ids[0]
			}
		}
		out[k] = c
	}
	return out
}

// mix returns the first output of SplitMix64 with seed x.
func mix(x uint64) uint64 { return splitmix.At(x, 0) }

// uniform maps the top 53 bits of x to [0, 1).
func uniform(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// hash returns the 64-bit FNV-1a hash of b.
func hash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b) //nolint:errcheck // never fails
	return h.Sum64()
}

// hashIDs returns a hash of ids and their number.
func hashIDs(ids []int32) uint64 {
	h := uint64(len(ids))
	for _, id := range ids {
		h = mix(h ^ uint64(uint32(id)))
	}
	return h
}

package publish

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/easyrl/easyrl/inference"
)

// CanaryTokens is the usual length of a canary's prompt.
const CanaryTokens = 32

// moved is by how much the trainer's log-probabilities of the canary must have
// changed, at the most changed token, before a server's must have changed too:
// less than that a server of lower precision may round away.
const moved = 1e-4

// Canary is a fixed prompt whose log-probabilities tell weights apart. A server
// passes when the median distance of its own from the trainer's is at most
// Tolerance, and when they are not the very same as before weights under which
// the trainer's have moved by more than 1e-4. The first finds other weights,
// half an update and a wrong layout; the second an update that was never
// applied. Several instances may share a canary.
//
// The distance is the median since a few unlikely tokens carry most of what lower
// precision does. With all weights rounded to bfloat16 the median was 0.0002 to
// 0.005 nats on text of a 260 thousand parameter story model (mean up to 0.006)
// and 0.009 on the quickstart's prompts (mean 0.014); on ids spread over the
// vocabularies it was 0.039 and 0.017. A server that computes in bfloat16 too is
// further off. The quickstart's training moved the median by 0.028 in its first
// step, 0.074 in two, 0.23 in five and 0.95 in twenty.
//
// So a canary does not see base weights in place of those of a first step, nor
// one version in place of the next, where steps are small; with the learning
// rates of large models that may be hundreds of steps. It does not see what
// changes fewer than half of the prompt's tokens either. What it sees is
// evidence beside the label, no proof: a checksum is one.
type Canary struct {
	// Prompt is usually CanaryTokens tokens, as likely ones as can be had.
	Prompt []int32
	// Logprobs returns the trainer's natural log-probabilities under a version,
	// which is the one that is being published: entry i is log p(Prompt[i] |
	// Prompt[:i]), entry 0 is not read. It may be called concurrently.
	Logprobs func(ctx context.Context, version int64) ([]float32, error)
	// Tolerance of the median is in nats; 0 is 0.05: five times what rounding the
	// weights to bfloat16 does to the quickstart, and what two steps of it exceed.
	Tolerance float64
}

// Validate reports the first fault of c.
func (c *Canary) Validate() error {
	switch {
	case len(c.Prompt) < 2:
		return fmt.Errorf("canary: prompt of %d tokens, expected %d", len(c.Prompt), CanaryTokens)
	case c.Logprobs == nil:
		return errors.New("canary: no log-probabilities of the trainer")
	case !(c.Tolerance >= 0) || math.IsInf(c.Tolerance, 0):
		return fmt.Errorf("canary: tolerance %v, expected 0 or more", c.Tolerance)
	}
	return nil
}

// Sampler makes one exchange: req.N responses of up to limit tokens, some of
// which may have been broken off.
type Sampler func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error)

// Sighting is what trainer and server said under one version.
type Sighting struct{ trainer, server []float32 }

// Look asks both sides and compares. before is the last sighting that passed,
// or nil.
func (c *Canary) Look(ctx context.Context, version int64, before *Sighting, sample Sampler) (*Sighting, error) {
	want, err := c.Logprobs(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("canary: trainer: %w", err)
	}
	if len(want) != len(c.Prompt) {
		return nil, fmt.Errorf("canary: trainer gives %d log-probabilities for %d tokens", len(want), len(c.Prompt))
	}
	out, err := sample(ctx, inference.Request{
		PromptIDs: c.Prompt, N: 1, PromptLogprobs: true,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 1},
	}, 1)
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	got := out[0].PromptLogprobs
	tolerance := c.Tolerance
	if tolerance == 0 {
		tolerance = 0.05
	}
	now := &Sighting{slices.Clone(want[1:]), slices.Clone(got[1:])}
	if median, _ := distance(now.trainer, now.server); !(median <= tolerance) {
		return nil, fmt.Errorf("canary: log-probabilities are %.3g off the trainer's in the median, expected at most %v: other weights serve", median, tolerance)
	}
	if before != nil {
		if _, most := distance(now.trainer, before.trainer); most > moved && slices.Equal(now.server, before.server) {
			return nil, fmt.Errorf("canary: log-probabilities are those of before, the trainer's moved by %.3g: the older weights serve", most)
		}
	}
	return now, nil
}

// distance is the median and the largest difference; of an even number the
// median is the upper one. Both are NaN where one of the differences is.
func distance(a, b []float32) (median, most float64) {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = math.Abs(float64(a[i]) - float64(b[i]))
	}
	slices.Sort(all)
	if math.IsNaN(all[0]) {
		return all[0], all[0]
	}
	return all[len(all)/2], all[len(all)-1]
}

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

// moved is the change of the trainer's log-probabilities, at the most changed token,
// above which a server's must have changed too. A server of lower precision may round a
// smaller change away.
const moved = 1e-4

// Canary is a fixed prompt whose log-probabilities distinguish weights. A server passes
// if its log-probabilities differ from the trainer's by at most Tolerance in the median.
// They must also differ from its previous ones if the trainer's moved by more than 1e-4.
// The first test finds other weights, half an update and a wrong layout; the second finds
// an update that was never applied. Several instances may share a canary.
//
// The distance is the median because a few unlikely tokens carry most of the effect of
// lower precision. With all weights rounded to bfloat16, the median was 0.0002 to 0.005
// nats on text of a 260 thousand parameter story model (mean up to 0.006) and 0.009 on
// the quickstart's prompts (mean 0.014). On IDs spread over the vocabularies it was 0.039
// and 0.017. A server that also computes in bfloat16 differs more. The quickstart's
// training moved the median by 0.028 in its first step, 0.074 in two, 0.23 in five and
// 0.95 in twenty.
//
// So a canary cannot distinguish base weights from those of a first step, nor one version
// from the next, if steps are small. With the learning rates of large models that may
// take hundreds of steps. It also misses changes that affect fewer than half of the
// prompt's tokens. It adds evidence to the label but proves nothing; a checksum does.
type Canary struct {
	// Prompt usually has CanaryTokens tokens, as likely as possible.
	Prompt []int32
	// Logprobs returns the trainer's natural log-probabilities under the version being
	// published. Entry i is log p(Prompt[i] | Prompt[:i]); entry 0 is ignored. It may be
	// called concurrently.
	Logprobs func(ctx context.Context, version int64) ([]float32, error)
	// Tolerance limits the median, in nats; 0 means 0.05. That is five times the effect
	// of rounding the quickstart's weights to bfloat16, and two of its steps exceed it.
	Tolerance float64
}

// Validate reports the first fault of c.
func (c *Canary) Validate() error {
	switch {
	case len(c.Prompt) < 2:
		return fmt.Errorf("canary: prompt has %d tokens, expected %d", len(c.Prompt), CanaryTokens)
	case c.Logprobs == nil:
		return errors.New("canary: no source of the trainer's log-probabilities")
	case !(c.Tolerance >= 0) || math.IsInf(c.Tolerance, 0):
		return fmt.Errorf("canary: tolerance %v, expected 0 or more", c.Tolerance)
	}
	return nil
}

// Sampler makes one exchange: req.N responses of up to limit tokens each. The server may
// have aborted some.
type Sampler func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error)

// Sighting holds the log-probabilities of trainer and server under one version.
type Sighting struct{ trainer, server []float32 }

// Look samples the canary and compares both sides. before is the last sighting that
// passed, or nil.
func (c *Canary) Look(ctx context.Context, version int64, before *Sighting, sample Sampler) (*Sighting, error) {
	want, err := c.Logprobs(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("canary: trainer: %w", err)
	}
	if len(want) != len(c.Prompt) {
		return nil, fmt.Errorf("canary: trainer returned %d log-probabilities for %d tokens", len(want), len(c.Prompt))
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
		return nil, fmt.Errorf("canary: log-probabilities differ from the trainer's by %.3g in the median, expected at most %v: the server has other weights", median, tolerance)
	}
	if before != nil {
		if _, most := distance(now.trainer, before.trainer); most > moved && slices.Equal(now.server, before.server) {
			return nil, fmt.Errorf("canary: log-probabilities did not change, but the trainer's moved by %.3g: the server still has the older weights", most)
		}
	}
	return now, nil
}

// distance returns the median and the largest difference. The median of an even number is
// the upper one. Both are NaN if any difference is.
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

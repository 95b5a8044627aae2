// Package verify finds groups that instances did not sample with the published weights,
// and samples them again.
package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Verifier verifies groups. Only one goroutine may use it.
type Verifier struct {
	Models  *trimodel.Models
	Rows    int // maximum rows of a pass, unless a single response has more
	Produce func(ctx context.Context, batch rollout.Batch) rollout.Stream
	Track   trace.Track
}

// Again counts the groups that were sampled again.
type Again struct {
	Groups, Failed int
	RewardRetries  int64
	Waited         time.Duration
}

// mismatch is the error of a group that the published weights did not sample.
type mismatch struct{ error }

// Groups returns groups of a batch, with those sampled again that the published weights did
// not sample. It omits a group whose reward fails then. It returns an error for a group of
// another step or version.
//
// Every response of a group decides what is trained: its reward is part of the others'
// advantages, and dynamic sampling replaces groups by their rewards. Therefore responses
// without a gradient and replaced groups are verified too.
func (v *Verifier) Groups(ctx context.Context, batch rollout.Batch, groups []rollout.Group, again *Again) ([]rollout.Group, error) {
	var good []rollout.Group
	for i := range groups {
		g, err := v.genuine(ctx, batch, &groups[i], again)
		if err != nil {
			return nil, err
		}
		if g != nil {
			good = append(good, *g)
		}
	}
	return good, nil
}

// genuine returns g, or the group that takes its place, or nil if the latter's reward fails.
// A fleet retires an instance that it rejects too often, which ends the repetition.
func (v *Verifier) genuine(ctx context.Context, batch rollout.Batch, g *rollout.Group, again *Again) (*rollout.Group, error) {
	for g != nil {
		err := v.verify(ctx, batch, g)
		if !errors.As(err, new(mismatch)) {
			return g, err
		}
		replacement, failed := v.sample(ctx, batch, g.Index, again)
		if failed != nil {
			return nil, fmt.Errorf("%w; sampling it again failed: %w", err, failed)
		}
		g = replacement
	}
	return nil, nil //nolint:nilnil // counted as failed
}

// sample samples the group at an index again. It returns nil if the group's reward fails.
func (v *Verifier) sample(ctx context.Context, batch rollout.Batch, index int, again *Again) (g *rollout.Group, err error) {
	span, began := v.Track.Begin(batch.Step, "wait"), time.Now()
	batch.Only = []int{index}
	stream := v.Produce(ctx, batch)
	for got := range stream.Groups() {
		g = &got
	}
	stats, err := stream.Wait()
	span.End()
	again.Groups++
	again.Failed += stats.Failed
	again.RewardRetries += stats.RewardRetries
	again.Waited += time.Since(began)
	if err == nil && g == nil && stats.Failed == 0 {
		err = errors.New("the producer reported neither a group nor a failure")
	}
	return g, err
}

// verify checks g and the groups that it replaced. It rejects the first one that the
// published weights did not sample, and returns a mismatch.
func (v *Verifier) verify(ctx context.Context, batch rollout.Batch, g *rollout.Group) error {
	for i := range g.Before {
		if err := v.verify(ctx, batch, &g.Before[i]); err != nil {
			return err
		}
	}
	if err := OnPolicy(g, batch.Step, batch.Version); err != nil {
		return err
	}
	if g.Reject == nil {
		return nil
	}
	defer v.Track.Begin(batch.Step, "verify").End()
	err := v.recompute(ctx, g)
	if errors.As(err, new(mismatch)) {
		g.Reject(err)
	}
	return err
}

// OnPolicy enforces the on-policy invariant: each response of a group was sampled, to its
// last token, with the step's version of the weights.
func OnPolicy(g *rollout.Group, step int, version int64) error {
	if g.Step != step || g.Version != version {
		return fmt.Errorf("prompt %s: group is from step %d and version %d, expected step %d and version %d: not on-policy",
			g.Prompt.ID, g.Step, g.Version, step, version)
	}
	for i := range g.Responses {
		r := &g.Responses[i]
		if r.Version != version {
			return fmt.Errorf("prompt %s, response %d: sampled with version %d, expected %d: not on-policy", g.Prompt.ID, i, r.Version, version)
		}
		if len(r.IDs) == 0 || len(r.IDs) != len(r.Logprobs) {
			return fmt.Errorf("prompt %s, response %d: %d tokens but %d log-probabilities", g.Prompt.ID, i, len(r.IDs), len(r.Logprobs))
		}
		if r.Reward-r.Reward != 0 {
			return fmt.Errorf("prompt %s, response %d: reward is %v", g.Prompt.ID, i, r.Reward)
		}
	}
	return nil
}

// recompute computes the log-probabilities of g's responses and compares them with the
// recorded ones, in passes of up to Rows rows.
func (v *Verifier) recompute(ctx context.Context, g *rollout.Group) error {
	prompt, most := len(g.Prompt.IDs), v.Models.Policy.Config.MaxPositions
	for from := 0; from < len(g.Responses); {
		to, rows := from, prompt
		for to < len(g.Responses) && (to == from || rows+len(g.Responses[to].IDs) <= v.Rows) {
			n := len(g.Responses[to].IDs)
			if prompt+n > most {
				return mismatch{fmt.Errorf("prompt %s, response %d: %d tokens with the prompt, expected at most %d", g.Prompt.ID, to, prompt+n, most)}
			}
			rows += n
			to++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.compare(g, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// compare compares responses from to to, to excluded, in one pass.
func (v *Verifier) compare(g *rollout.Group, from, to int) error {
	var l attention.Layout
	root := l.Add(-1, g.Prompt.IDs, false)
	for i := from; i < to; i++ {
		l.AddLeaf(root, g.Responses[i].IDs)
	}
	computed, err := v.Models.Recompute(&l)
	if err != nil {
		return fmt.Errorf("prompt %s: %w", g.Prompt.ID, err)
	}
	for i := from; i < to; i++ {
		for k, recorded := range g.Responses[i].Logprobs {
			if recorded != computed[k] { // also if one is NaN
				return mismatch{fmt.Errorf("prompt %s, response %d: token %d has log-probability %v, expected %v: the instance does not sample with the weights that it reports",
					g.Prompt.ID, i, k, recorded, computed[k])}
			}
		}
		computed = computed[len(g.Responses[i].IDs):]
	}
	return nil
}

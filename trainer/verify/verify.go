// Package verify finds groups that instances did not sample with the published weights,
// and samples them again.
package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
)

// OffPolicyError is the error of Rest and Pass for a group that was sampled with other weights than the
// published ones. If Groups is then called again with the batch's groups, it finds and replaces that
// group.
type OffPolicyError struct{ error }

// Models are what a Verifier needs of a backend.Models.
type Models interface {
	MaxPositions() int
	Recompute(ctx context.Context, l *attention.Layout) ([]float32, error)
}

// Verifier verifies groups. Only one goroutine may use it.
type Verifier struct {
	Models  Models
	Rows    int // maximum rows of a pass, unless a single response has more
	Produce func(ctx context.Context, batch rollout.Batch) rollout.Stream
	Track   trace.Track
	// DeferToPasses leaves responses to training, which then calls Rest for each group and Pass for
	// each response that it trains, before any gradient is used. Groups then recomputes only the
	// responses of instances that Rest or Pass have caught, and replaced groups.
	DeferToPasses bool

	caught map[string]bool // instances
}

// Resampled counts the groups that were sampled again.
type Resampled struct {
	Groups, Failed int
	RewardRetries  int64
	Waited         time.Duration
}

// mismatch is the error of a group that the published weights did not sample.
type mismatch struct{ error }

// Groups returns the groups of a batch. In place of groups that the published weights did not sample,
// it samples others. It omits a group whose new reward fails. It returns an error for a group of
// another step or version.
//
// Every response of a group decides what is trained: its reward is part of the others'
// advantages, and dynamic sampling replaces groups by their rewards. Therefore responses
// without a gradient and replaced groups are verified too.
func (v *Verifier) Groups(
	ctx context.Context, batch rollout.Batch, groups []rollout.Group, again *Resampled,
) ([]rollout.Group, error) {
	var good []rollout.Group
	for i := range groups {
		g, err := v.verified(ctx, batch, &groups[i], again)
		if err != nil {
			return nil, err
		}
		if g != nil {
			good = append(good, *g)
		}
	}
	return good, nil
}

// Rest verifies the responses of g other than those with these indices, which training
// passes to Pass.
func (v *Verifier) Rest(ctx context.Context, g *rollout.Group, trained []int) error {
	if !v.inPasses(g) || len(trained) == len(g.Responses) {
		return nil
	}
	defer v.Track.Begin(g.Step, "verify").End()
	rest := slices.DeleteFunc(every(g), func(i int) bool { return slices.Contains(trained, i) })
	return v.catch(g, v.recompute(ctx, g, rest))
}

// Pass verifies a response of g. recomputed are its log-probabilities under the published
// weights.
func (v *Verifier) Pass(g *rollout.Group, response *rollout.Response, recomputed []float32) error {
	if !v.inPasses(g) {
		return nil
	}
	return v.catch(g, compare(g, response, recomputed))
}

// catch records the instance of g as caught if err is a mismatch, and returns an OffPolicyError.
func (v *Verifier) catch(g *rollout.Group, err error) error {
	if !errors.As(err, new(mismatch)) {
		return err
	}
	if v.caught == nil {
		v.caught = map[string]bool{}
	}
	v.caught[g.Responses[0].Instance] = true
	return OffPolicyError{err}
}

// inPasses reports whether Rest and Pass verify g.
func (v *Verifier) inPasses(g *rollout.Group) bool {
	return g.Reject != nil && v.DeferToPasses && !v.caught[g.Responses[0].Instance]
}

// verified returns g, or the group that replaces it, or nil if the replacement's reward fails.
// The loop ends, because a fleet retires an instance that it rejects too often.
func (v *Verifier) verified(
	ctx context.Context, batch rollout.Batch, g *rollout.Group, again *Resampled,
) (*rollout.Group, error) {
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
func (v *Verifier) sample(
	ctx context.Context, batch rollout.Batch, index int, again *Resampled,
) (g *rollout.Group, err error) {
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
	err := v.fits(g)
	if err == nil && (g.Replaced || !v.inPasses(g)) {
		span := v.Track.Begin(batch.Step, "verify")
		err = v.recompute(ctx, g, every(g))
		span.End()
	}
	if errors.As(err, new(mismatch)) {
		g.Reject(err)
	}
	return err
}

// OnPolicy enforces the on-policy invariant: each response of a group was sampled, to its
// last token, with the step's version of the weights.
func OnPolicy(g *rollout.Group, step int, version int64) error {
	if g.Step != step || g.Version != version {
		return fmt.Errorf(
			"prompt %s: group is from step %d and version %d, expected step %d and version %d: not on-policy",
			g.Prompt.ID, g.Step, g.Version, step, version)
	}
	for i := range g.Responses {
		r := &g.Responses[i]
		if r.Version != version {
			return fmt.Errorf("prompt %s, response %d: sampled with version %d, expected %d: not on-policy",
				g.Prompt.ID, i, r.Version, version)
		}
		if len(r.IDs) == 0 || len(r.IDs) != len(r.Logprobs) {
			return fmt.Errorf("prompt %s, response %d: %d tokens but %d log-probabilities", g.Prompt.ID, i, len(r.IDs),
				len(r.Logprobs))
		}
		if math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0) {
			return fmt.Errorf("prompt %s, response %d: reward is %v", g.Prompt.ID, i, r.Reward)
		}
	}
	return nil
}

// fits returns a mismatch for a group that the models cannot compute.
func (v *Verifier) fits(g *rollout.Group) error {
	limit := v.Models.MaxPositions()
	for i := range g.Responses {
		if n := len(g.Prompt.IDs) + len(g.Responses[i].IDs); n > limit {
			return mismatch{fmt.Errorf("prompt %s, response %d: %d tokens with the prompt, expected at most %d",
				g.Prompt.ID, i, n, limit)}
		}
	}
	return nil
}

// every returns the indices of g's responses.
func every(g *rollout.Group) []int {
	all := make([]int, len(g.Responses))
	for i := range all {
		all[i] = i
	}
	return all
}

// recompute computes the log-probabilities of some responses of g and compares them with
// the recorded ones, in passes of up to Rows rows.
func (v *Verifier) recompute(ctx context.Context, g *rollout.Group, some []int) error {
	for len(some) > 0 {
		var l attention.Layout
		root := l.Add(-1, g.Prompt.IDs, false)
		n := 0
		for ; n < len(some); n++ {
			ids := g.Responses[some[n]].IDs
			if n > 0 && l.Rows()+len(ids) > v.Rows {
				break
			}
			l.AddResponse(root, ids)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		recomputed, err := v.Models.Recompute(ctx, &l)
		if err != nil {
			return fmt.Errorf("prompt %s: %w", g.Prompt.ID, err)
		}
		for _, i := range some[:n] {
			r := &g.Responses[i]
			if err := compare(g, r, recomputed[:len(r.IDs)]); err != nil {
				return err
			}
			recomputed = recomputed[len(r.IDs):]
		}
		some = some[n:]
	}
	return nil
}

// compare returns a mismatch unless the recorded log-probabilities of a response of g equal
// the recomputed ones.
func compare(g *rollout.Group, r *rollout.Response, recomputed []float32) error {
	for k, recorded := range r.Logprobs {
		if recorded != recomputed[k] { // also if one is NaN
			return mismatch{fmt.Errorf("prompt %s: token %d of a response has log-probability %v, expected %v: "+
				"the instance does not sample with the weights that it reports", g.Prompt.ID, k, recorded,
				recomputed[k])}
		}
	}
	return nil
}

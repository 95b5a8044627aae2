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

// OffPolicyError reports a group that was not sampled with the published weights. CheckUntrained and
// CheckTrained return it. If Groups is then called again with the batch's groups, it finds and replaces
// that group.
type OffPolicyError struct{ reason string }

// Error returns the reason, which names the prompt.
func (e OffPolicyError) Error() string { return e.reason }

// offPolicy returns an OffPolicyError.
func offPolicy(format string, args ...any) error { return OffPolicyError{fmt.Sprintf(format, args...)} }

// Models are what a Verifier needs of a backend.Models.
type Models interface {
	MaxPositions() int
	Recompute(ctx context.Context, l *attention.Layout, version int64) ([]float32, error)
}

// Verifier verifies that the published weights sampled the groups that training gets: log-probabilities
// recomputed with these weights must equal the recorded ones. Only groups with a Reject callback, from
// instances whose arithmetic is the trainer's, can be compared; for the others Groups checks only their versions.
//
// Groups recomputes in separate passes. With DeferToPasses, training's own passes provide most of the
// recomputed values (CheckTrained). If one differs, Verifier remembers the instance, the trainer calls Groups
// again, and Groups now recomputes all responses of that instance. Only one goroutine may use a Verifier.
type Verifier struct {
	Models  Models
	Rows    int // maximum rows of a pass, unless a single response has more
	Produce func(ctx context.Context, batch rollout.Batch) rollout.Stream
	Track   trace.Track
	// DeferToPasses leaves most responses to training, which must call CheckUntrained for each group and
	// CheckTrained for each response that it trains, before it uses any gradient. Groups then recomputes only
	// replaced groups and the responses of instances that these calls have caught.
	DeferToPasses bool

	caught map[string]bool // names of instances that CheckUntrained or CheckTrained have caught
}

// Resampled counts what sampling groups again took.
type Resampled struct {
	Groups        int // groups that were sampled again
	Failed        int // of these, groups whose reward failed
	RewardRetries int64
	Waited        time.Duration
}

// Groups verifies the groups of a batch and returns them. It samples again each group that the published weights
// did not sample, and counts that in resampled; if the reward of the new group fails, it omits the group. It
// returns an error for a group of another batch or version.
//
// Every response of a group decides what is trained: its reward is part of the others'
// advantages, and dynamic sampling replaces groups by their rewards. Therefore responses
// without a gradient and replaced groups are verified too.
func (v *Verifier) Groups(
	ctx context.Context, batch rollout.Batch, groups []rollout.Group, resampled *Resampled,
) ([]rollout.Group, error) {
	var good []rollout.Group
	for i := range groups {
		g, err := v.verifyOrReplace(ctx, batch, &groups[i], resampled)
		if err != nil {
			return nil, err
		}
		if g != nil {
			good = append(good, *g)
		}
	}
	return good, nil
}

// CheckUntrained verifies the sampled tokens of g that training does not pass to CheckTrained. trained are the
// indices of the responses that it does pass, which have their trained tokens verified there.
func (v *Verifier) CheckUntrained(ctx context.Context, g *rollout.Group, trained []int) error {
	if !v.inPasses(g) {
		return nil
	}
	untrained := slices.DeleteFunc(allIndices(g), func(i int) bool {
		spans := g.Responses[i].Spans
		allTrained := spans.Count(rollout.IsTrained) == spans.Count(rollout.IsPolicy)
		return allTrained && slices.Contains(trained, i)
	})
	if len(untrained) == 0 {
		return nil
	}
	defer v.Track.Begin(g.Batch, "verify").End()
	return v.catch(g, v.recompute(ctx, g, untrained, comparing(g)))
}

// CheckTrained verifies the trained tokens of a response of g. recomputed are their log-probabilities under the
// published weights.
func (v *Verifier) CheckTrained(g *rollout.Group, response *rollout.Response, recomputed []float32) error {
	if !v.inPasses(g) {
		return nil
	}
	return v.catch(g, compare(g, response.Spans.Logprobs(rollout.IsTrained), recomputed))
}

// catch returns err. If it is an OffPolicyError, catch records the instance of g as caught.
func (v *Verifier) catch(g *rollout.Group, err error) error {
	if errors.As(err, new(OffPolicyError)) {
		if v.caught == nil {
			v.caught = map[string]bool{}
		}
		v.caught[g.Responses[0].Instance] = true
	}
	return err
}

// inPasses reports whether CheckUntrained and CheckTrained verify g, and not Groups. All responses of a group are
// of one instance.
func (v *Verifier) inPasses(g *rollout.Group) bool {
	return g.Reject != nil && v.DeferToPasses && !v.caught[g.Responses[0].Instance]
}

// verifyOrReplace returns g, or the group that replaces it, or nil if the replacement's reward fails.
// The loop ends because a fleet retires an instance whose groups are rejected too often.
func (v *Verifier) verifyOrReplace(
	ctx context.Context, batch rollout.Batch, g *rollout.Group, resampled *Resampled,
) (*rollout.Group, error) {
	for g != nil {
		err := v.verify(ctx, batch, g)
		if !errors.As(err, new(OffPolicyError)) {
			return g, err
		}
		replacement, sampleErr := v.sample(ctx, batch, g.Index, resampled)
		if sampleErr != nil {
			// The result is no OffPolicyError, because another call would fail too.
			return nil, fmt.Errorf("%s; sampling it again failed: %w", err.Error(), sampleErr)
		}
		g = replacement
	}
	return nil, nil //nolint:nilnil // counted as failed
}

// sample samples the group at an index again. It returns nil if the group's reward fails.
func (v *Verifier) sample(
	ctx context.Context, batch rollout.Batch, index int, resampled *Resampled,
) (g *rollout.Group, err error) {
	span, began := v.Track.Begin(batch.Number, "wait"), time.Now()
	batch.Only = []int{index}
	stream := v.Produce(ctx, batch)
	for got := range stream.Groups() {
		g = &got
	}
	stats, err := stream.Wait()
	span.End()
	resampled.Groups++
	resampled.Failed += stats.Failed
	resampled.RewardRetries += stats.RewardRetries
	resampled.Waited += time.Since(began)
	if err == nil && g == nil && stats.Failed == 0 {
		err = errors.New("the producer reported neither a group nor a failure")
	}
	return g, err
}

// verify checks the groups that g replaced (Before), then g. It returns an OffPolicyError for the first one that the
// published weights did not sample, after reporting it to its instance with Reject.
func (v *Verifier) verify(ctx context.Context, batch rollout.Batch, g *rollout.Group) error {
	for i := range g.Before {
		if err := v.verify(ctx, batch, &g.Before[i]); err != nil {
			return err
		}
	}
	if err := OnPolicy(g, batch.Number, batch.Version); err != nil {
		return err
	}
	if g.Reject == nil {
		return nil
	}
	err := v.checkLengths(g)
	if err == nil && (g.Replaced || !v.inPasses(g)) {
		span := v.Track.Begin(batch.Number, "verify")
		err = v.recompute(ctx, g, allIndices(g), comparing(g))
		span.End()
	}
	if errors.As(err, new(OffPolicyError)) {
		g.Reject(err)
	}
	return err
}

// OnPolicy enforces the on-policy invariant: each response of a group was sampled, to its
// last token, with the batch's version of the weights.
func OnPolicy(g *rollout.Group, batch int, version int64) error {
	if g.Batch != batch || g.Version != version {
		return fmt.Errorf(
			"prompt %s: group is from batch %d and version %d, expected batch %d and version %d: not on-policy",
			g.Prompt.ID, g.Batch, g.Version, batch, version)
	}
	for i := range g.Responses {
		r := &g.Responses[i]
		if err := r.Spans.CheckSampled(version); err != nil {
			return fmt.Errorf("prompt %s, response %d: %w", g.Prompt.ID, i, err)
		}
		if math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0) {
			return fmt.Errorf("prompt %s, response %d: reward is %v", g.Prompt.ID, i, r.Reward)
		}
	}
	return nil
}

// checkLengths returns an OffPolicyError for a group with a response that is longer than the model's context.
func (v *Verifier) checkLengths(g *rollout.Group) error {
	limit := v.Models.MaxPositions()
	for i := range g.Responses {
		if n := len(g.Prompt.IDs) + g.Responses[i].Spans.Tokens(); n > limit {
			return offPolicy("prompt %s, response %d: %d tokens with the prompt, expected at most %d",
				g.Prompt.ID, i, n, limit)
		}
	}
	return nil
}

// allIndices returns the indices of g's responses.
func allIndices(g *rollout.Group) []int {
	all := make([]int, len(g.Responses))
	for i := range all {
		all[i] = i
	}
	return all
}

// recompute computes the log-probabilities of the responses of g with the given indices, in passes of up to Rows
// rows. It calls visit with those of each response, in order, until visit fails.
func (v *Verifier) recompute(
	ctx context.Context, g *rollout.Group, indices []int,
	visit func(response int, recorded, recomputed []float32) error,
) error {
	for len(indices) > 0 {
		var l attention.Layout
		root := l.Add(-1, g.Prompt.IDs, false) // a new tree; prompts have no targets
		n := 0                                 // responses in this pass
		for ; n < len(indices); n++ {
			spans := g.Responses[indices[n]].Spans
			if n > 0 && l.Rows()+attention.TrajectoryRows(spans, rollout.IsPolicy) > v.Rows {
				break
			}
			l.AddTrajectory(root, spans, rollout.IsPolicy)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		recomputed, err := v.Models.Recompute(ctx, &l, g.Version)
		if err != nil {
			return fmt.Errorf("prompt %s: %w", g.Prompt.ID, err)
		}
		for _, i := range indices[:n] {
			recorded := g.Responses[i].Spans.Logprobs(rollout.IsPolicy)
			if err := visit(i, recorded, recomputed[:len(recorded)]); err != nil {
				return err
			}
			recomputed = recomputed[len(recorded):]
		}
		indices = indices[n:]
	}
	return nil
}

// comparing returns a function for recompute that calls compare.
func comparing(g *rollout.Group) func(response int, recorded, recomputed []float32) error {
	return func(_ int, recorded, recomputed []float32) error { return compare(g, recorded, recomputed) }
}

// compare returns an OffPolicyError unless the recorded log-probabilities of tokens of a response of g equal the
// recomputed ones.
func compare(g *rollout.Group, recorded, recomputed []float32) error {
	if k := differing(recorded, recomputed); k >= 0 {
		return offPolicy("prompt %s: token %d of a response has log-probability %v, expected %v: "+
			"the instance does not sample with the weights that it reports", g.Prompt.ID, k, recorded[k], recomputed[k])
	}
	return nil
}

// differing returns the index of the first recorded log-probability that is not the recomputed one, or -1.
func differing(recorded, recomputed []float32) int {
	for k, lp := range recorded {
		if lp != recomputed[k] { // true if one is NaN
			return k
		}
	}
	return -1
}

// Difference is a sampled token whose recorded log-probability is not the recomputed one.
type Difference struct {
	Response, Token      int // indices in the group, and among the response's tokens of the policy
	Recorded, Recomputed float32
}

// Differences returns the first differing token of each response of g that has one.
func (v *Verifier) Differences(ctx context.Context, g *rollout.Group) (all []Difference, err error) {
	err = v.recompute(ctx, g, allIndices(g), func(response int, recorded, recomputed []float32) error {
		if k := differing(recorded, recomputed); k >= 0 {
			all = append(all, Difference{response, k, recorded[k], recomputed[k]})
		}
		return nil
	})
	return all, err
}

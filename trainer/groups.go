package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer/verify"
)

// learn verifies groups, replaces those that were sampled with other weights than the published ones, and
// trains all of them. If training finds such a group, learn discards the gradients, which may contain a part
// of it, and accumulates the whole batch from the start.
func (r *rollouts) learn(ctx context.Context, s *step, b *miniBatch, groups []rollout.Group) error {
	for {
		began := time.Now()
		waitedBefore := r.sampling.resampled.Waited
		good, err := r.verifier.Groups(ctx, r.sampling.batch, groups, &r.sampling.resampled)
		waited := r.sampling.resampled.Waited - waitedBefore
		s.clock.wait += waited
		s.clock.train += time.Since(began) - waited
		if err == nil {
			err = r.train(ctx, s, b, good)
		}
		if !errors.As(err, new(verify.OffPolicyError)) {
			return err
		}
		groups = slices.Clone(r.sampling.groups[b.first:])
		r.sampling.groups = r.sampling.groups[:b.first]
		*b = miniBatch{first: b.first}
		r.t.Models.Discard()
	}
}

// train accumulates the gradients of verified groups, a micro-batch at a time.
func (r *rollouts) train(ctx context.Context, s *step, b *miniBatch, groups []rollout.Group) error {
	began := time.Now()
	defer func() { s.clock.train += time.Since(began) }()
	rewards := make([][]float64, len(groups))
	for i := range groups {
		groups[i].Step = s.number
		for k := range groups[i].Before {
			groups[i].Before[k].Step = s.number
		}
		rewards[i] = rewardsOf(&groups[i])
	}
	advantages := loss.BatchAdvantages(r.Loss.Advantage, rewards)
	for i := range groups {
		if err := r.checkStatistics(&groups[i], rewards[i], advantages[i]); err != nil {
			return err
		}
	}
	for i := range groups {
		for j := range groups[i].Responses {
			groups[i].Responses[j].Advantage = &advantages[i][j]
		}
	}
	r.sampling.groups = append(r.sampling.groups, groups...)
	for i := range groups {
		trained := withGradient(&r.Loss, rewards[i], advantages[i])
		if err := r.verifier.CheckUntrained(ctx, &groups[i], trained); err != nil {
			return err
		}
	}
	leaves := slices.Collect(r.leaves(b, groups, rewards, advantages))
	rows := r.t.rowsFor(leaves)
	if r.Leaves != nil {
		rows = 1 // each leaf is a micro-batch by itself
		leaves = slices.DeleteFunc(leaves, func(l leaf) bool { return !r.selects(s, l) })
	}
	return pack(slices.Values(leaves), rows, func(m *micro) error {
		if r.Leaves != nil {
			b.leaves = append(b.leaves, m.leaf(s))
		}
		return r.t.pass(ctx, s, b, m, func(out backend.Outputs) (backend.Values, error) {
			return r.derive(s, b, m, out)
		})
	})
}

// isFinite reports whether v is neither infinite nor NaN.
func isFinite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

// rewardsOf returns the rewards of a group's responses.
func rewardsOf(g *rollout.Group) []float64 {
	rewards := make([]float64, len(g.Responses))
	for i := range g.Responses {
		rewards[i] = g.Responses[i].Reward
	}
	return rewards
}

// checkStatistics returns an error that names an advantage or a metric of a group that is not finite. Large
// finite rewards can overflow them.
func (r *rollouts) checkStatistics(g *rollout.Group, rewards, advantages []float64) error {
	for i, a := range advantages {
		if v := float64(float32(a)); !isFinite(v) { // the loss takes a float32
			return fmt.Errorf("prompt %s: advantage of response %d is %v, expected a finite number", g.Prompt.ID, i, v)
		}
	}
	size := 0.0 // if it is finite, so is every statistic
	for i, v := range rewards {
		size += float64(v * v) // the conversion forbids fusing, so that all machines agree
		for _, part := range g.Responses[i].Parts {
			size += math.Abs(part)
		}
	}
	if isFinite(size) {
		return nil
	}
	var m metrics
	r.measureGroup(&m, g, rewards)
	statistics := report.Values{}
	m.into(statistics)
	for name, v := range statistics {
		if !isFinite(v) {
			return fmt.Errorf("prompt %s: %s is %v, expected a finite number", g.Prompt.ID, name, v)
		}
	}
	return nil
}

// leaves yields the leaves of groups, and counts and measures each group.
func (r *rollouts) leaves(b *miniBatch, groups []rollout.Group, rewards, advantages [][]float64) iter.Seq[leaf] {
	return func(yield func(leaf) bool) {
		for i := range groups {
			g := &groups[i]
			kept := loss.Keep(r.Loss.Keep, rewards[i])
			b.responses += len(kept)
			for _, j := range kept {
				b.tokens += g.Responses[j].Spans.Count(rollout.IsTrained)
			}
			r.measureGroup(&b.metrics, g, rewards[i])
			b.metrics.Share("reward/no_signal_frac", !loss.Signal(advantages[i], kept))
			for p := range r.cut(g, advantages[i], withGradient(&r.Loss, rewards[i], advantages[i])) {
				if !yield(leaf{p}) {
					return
				}
			}
		}
	}
}

// withGradient returns the indices of a group's responses that have a gradient: of the kept ones, those whose
// advantage is not 0, or all if beta is above 0, because the divergence then has a gradient too.
func withGradient(c *loss.Config, rewards, advantages []float64) []int {
	kept := loss.Keep(c.Keep, rewards)
	return slices.DeleteFunc(kept, func(i int) bool { return float32(advantages[i]) == 0 && c.Beta == 0 })
}

// cut splits the responses of a group with the given indices into parts, without those that have no trained
// token. Each part becomes a leaf and depends only on the group. Models without leaves get parts that fit a
// micro-batch.
func (r *rollouts) cut(g *rollout.Group, advantages []float64, indices []int) iter.Seq[part] {
	return func(yield func(part) bool) {
		current := part{id: g.Prompt.ID, group: g, sampler: g.Version, flow: g.Seed, prompt: g.Prompt.IDs}
		rows := len(current.prompt)
		limit := cmp.Or(r.t.Models.LeafRows(len(current.prompt)), r.t.microBatchRows())
		for _, i := range indices {
			response := &g.Responses[i]
			tokens := response.Spans.Count(rollout.IsTrained)
			if tokens == 0 {
				continue
			}
			n := trainedRows(response.Spans)
			if len(current.responses) > 0 && rows+n > limit {
				if !yield(current) {
					return
				}
				current.responses = nil
				rows = len(current.prompt)
			}
			current.responses = append(current.responses, sequence{spans: response.Spans, response: response, index: i,
				advantage: slices.Repeat([]float32{float32(advantages[i])}, tokens),
				weight:    slices.Repeat([]float32{r.Loss.Aggregation.Weight(tokens)}, tokens)})
			rows += n
		}
		if len(current.responses) > 0 {
			yield(current)
		}
	}
}

// derive evaluates the loss of a micro-batch, measures it and returns its derivative.
func (r *rollouts) derive(s *step, b *miniBatch, m *micro, out backend.Outputs) (backend.Values, error) {
	recomputed := out.Values[backend.Sampler]
	if err := m.verify(&r.verifier, recomputed); err != nil {
		return nil, err
	}
	defer r.t.Track.Begin(s.number, "loss").End()
	result, err := r.objective.Eval(loss.Vars{
		Policy: out.Values[backend.Policy], Old: out.Values[backend.OldPolicy],
		Reference: out.Values[backend.Reference], Recomputed: recomputed,
		Behaviour: m.behaviour, Advantage: m.advantage, Weight: m.weight, Lengths: m.lengths,
	})
	if err != nil {
		return nil, err
	}
	b.loss.Merge(&result.Loss)
	b.pg.Merge(&result.PG)
	r.measurePass(&b.metrics, &result, out.Entropy)
	if r.LogRollouts {
		m.recordEntropies(out.Entropy)
	}
	if recomputed != nil {
		measureMismatch(&b.metrics, recomputed, m.behaviour)
	}
	return backend.Values{backend.Policy: result.Grad}, nil
}

// verify returns a verify.OffPolicyError if the published weights did not sample the micro-batch. recomputed
// are its log-probabilities under these weights, nil if Verifier.DeferToPasses is false.
func (m *micro) verify(v *verify.Verifier, recomputed []float32) error {
	if recomputed == nil {
		return nil // Verifier.Groups has verified them
	}
	for i, n := range m.lengths {
		if err := v.CheckTrained(m.groups[i], m.responses[i], recomputed[:n]); err != nil {
			return err
		}
		recomputed = recomputed[n:]
	}
	return nil
}

// recordEntropies stores the policy's entropies, rounded to 4 decimals, in the responses for the rollouts file.
func (m *micro) recordEntropies(entropies []float32) {
	for i, response := range m.responses {
		n := m.lengths[i]
		response.Entropies = make([]float32, n)
		for k, e := range entropies[:n] {
			response.Entropies[k] = float32(math.Round(float64(e)*1e4) / 1e4)
		}
		entropies = entropies[n:]
	}
}

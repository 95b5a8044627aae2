package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"

	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
	"github.com/easyrl/easyrl/trainer/verify"
)

// errPart ends a step of which only a part is audited.
var errPart = errors.New("the chosen part of the step is recomputed")

// part is what an audit recomputes of a step if it does not recompute all of it.
type part struct {
	recorded []trainer.Leaf // all leaves of the step
	leaves   []trainer.Leaf // those that were drawn
	last     int            // the last update with one of leaves; earlier ones are recomputed as a whole
	strange  []string       // leaves of the step that are not recorded
}

// choose draws the leaves of the audited step that are recomputed. It returns an error that wraps fs.ErrNotExist if
// the run records none.
func (r *recomputed) choose() error {
	updates, err := r.recordedLeaves(r.audit.of.Step)
	if err != nil {
		return err
	}
	r.part = &part{}
	for _, u := range updates {
		for _, l := range u.Leaves {
			r.part.recorded = append(r.part.recorded, l.Leaf)
		}
	}
	for _, i := range r.audit.draw(len(r.part.recorded)) {
		l := r.part.recorded[i]
		r.part.leaves, r.part.last = append(r.part.leaves, l), max(r.part.last, l.Update)
	}
	return nil
}

// draw draws of.Leaves of n numbers, or all of them.
func (a *audit) draw(n int) []int {
	return rand.New(rand.NewPCG(a.of.Seed, 0)).Perm(n)[:min(n, a.of.Leaves)]
}

// recordedLeaves returns the recorded linear sums of a step.
func (r *recomputed) recordedLeaves(step int) ([]trainer.UpdateSums, error) {
	updates, err := trainer.ReadLeaves(r.audit.of.Run, step, r.cfg.Run.Seed, r.folder.Shape.Params().Names())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage.Errorf("log.audit is true, but the sums of step %d are missing: %w", step, err)
	}
	return updates, usage.Wrap(err)
}

// selects implements trainer.Rollouts.Select.
func (r *recomputed) selects(step int, l trainer.Leaf) bool {
	p := r.part
	if p == nil || step != r.audit.of.Step {
		return true
	}
	if !slices.ContainsFunc(p.recorded, l.Same) {
		p.strange = append(p.strange, leafName(l)+" is not recorded")
	}
	return l.Update < p.last || slices.ContainsFunc(p.leaves, l.Same)
}

// verifies reports whether the recorded log-probabilities of a group of a step are recomputed.
func (r *recomputed) verifies(step int, g *rollout.Group) bool {
	return r.part == nil || step != r.audit.of.Step ||
		slices.ContainsFunc(r.part.leaves, func(l trainer.Leaf) bool { return l.Group == g.Index })
}

// compareLeaves implements trainer.Rollouts.Leaves: it compares linear sums of gradients with the recorded ones. check
// reports what differs.
func (r *recomputed) compareLeaves(step int, updates []trainer.UpdateSums) error {
	whole := r.part == nil || step != r.audit.of.Step
	r.leafFaults = nil
	if !whole {
		r.leafFaults = r.part.strange
	}
	recorded, err := r.recordedLeaves(step)
	if err != nil {
		return err
	}
	names := r.folder.Shape.Params().Names()
	if whole && len(recorded) != len(updates) {
		r.leafFaults = append(r.leafFaults, fmt.Sprintf("%s has %d updates, recomputed %d",
			trainer.LeavesPath(r.audit.of.Run, step), len(recorded), len(updates)))
		return nil
	}
	fault := func(format string, args ...any) {
		r.leafFaults = append(r.leafFaults, fmt.Sprintf(format, args...))
	}
	for i, was := range recorded {
		sum := make([]uint64, len(names))
		for _, l := range was.Leaves {
			for k, v := range l.Sums {
				sum[k] += v
			}
		}
		if k := firstDifference(sum, was.Total); k >= 0 {
			fault("the recorded sums of the leaves of update %d add up to %016x for %s, but the recorded "+
				"total is %016x", i+1, sum[k], names[k], was.Total[k])
		}
		if i >= len(updates) {
			continue
		}
		now := updates[i]
		computed := func(l trainer.Leaf) bool {
			return slices.ContainsFunc(now.Leaves, func(o trainer.LeafSums) bool { return o.Same(l) })
		}
		for _, l := range was.Leaves {
			chosen := whole || slices.ContainsFunc(r.part.leaves, l.Same)
			if chosen && !computed(l.Leaf) {
				fault("%s is recorded, but the step has no such leaf", leafName(l.Leaf))
			}
		}
		for _, l := range now.Leaves {
			at := slices.IndexFunc(was.Leaves, func(o trainer.LeafSums) bool { return o.Same(l.Leaf) })
			if at < 0 {
				fault("%s is not recorded", leafName(l.Leaf))
			} else if k := firstDifference(was.Leaves[at].Sums, l.Sums); k >= 0 {
				fault("%s: the sum of the gradient of %s is recorded as %016x, "+
					"recomputed %016x", leafName(l.Leaf), names[k], was.Leaves[at].Sums[k], l.Sums[k])
			}
		}
		if k := firstDifference(was.Total, now.Total); whole && k >= 0 {
			fault("update %d: the sum of the gradient of %s is recorded as %016x, recomputed %016x", i+1, names[k],
				was.Total[k], now.Total[k])
		}
	}
	if n := len(r.leafFaults); n > 1 {
		r.leafFaults = append(r.leafFaults[:1], fmt.Sprintf("%d other differences of leaves", n-1))
	}
	return nil
}

// firstDifference returns the index of the first value of a that is not that of b, or -1.
func firstDifference(a, b []uint64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func leafName(l trainer.Leaf) string {
	return fmt.Sprintf("update %d, group %d, responses %v", l.Update, l.Group, l.Responses)
}

// checkPart reports on the chosen leaves, and all advantages, of the audited step.
func (r *recomputed) checkPart(step int) error {
	if faults := append(r.checkAdvantages(), r.leafFaults...); len(faults) > 0 {
		return differs("step %d differs: %s", step, joined(faults))
	}
	r.audit.result = fmt.Sprintf("step %d: same gradients of %d of %d leaves (seed %d)", step, len(r.part.leaves),
		len(r.part.recorded), r.audit.of.Seed)
	return nil
}

// logprobs compares the recorded log-probabilities of some groups of the audited step, whose leaves have no recorded
// sums. It always returns an error, errPart if nothing differs.
func (r *recomputed) logprobs(ctx context.Context, step int) error {
	if !r.exact(step) {
		return usage.Errorf("step %d has no sums of leaves (log.audit), and its instances compute other "+
			"log-probabilities than the trainer, expected one of them for -leaves", step)
	}
	verifier := verify.Verifier{Models: r.models, Rows: r.cfg.Train.MicroBatchTokens}
	chosen := r.audit.draw(len(r.groups))
	for _, i := range chosen {
		found, err := verifier.Differences(ctx, &r.groups[i])
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return differs("step %d differs: %s", step, tokenName(&r.groups[i], found[0]))
		}
	}
	r.audit.result = fmt.Sprintf("step %d: same log-probabilities of %d of %d groups (seed %d); without log.audit, "+
		"the run records no sums of leaves", step, len(chosen), len(r.groups), r.audit.of.Seed)
	return errPart
}

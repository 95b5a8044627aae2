package run

import (
	"cmp"
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// maxPrompts bounds the number of prompts that a file may claim.
const maxPrompts = 1 << 20

// recordedStep is a step with the groups of a rollouts file. It implements rollout.Stream.
type recordedStep struct {
	step    int // number of the step that sampled the groups; 0 if unknown
	prompts int // number of the step's prompts, including those without a group
	size    int // responses of the largest group
	longest int // maximum number of tokens that the policy wrote in a response
	groups  []rollout.Group
	stream  chan rollout.Group // set by start
}

// newRecordedStep returns the step of the groups, which must not be empty. If their indices ascend and are below
// the step's number of prompts, as in the file of a run, they are kept, and missing indices count as failed groups.
// Otherwise the groups are numbered from 0. The number of prompts is the one that the first group records, or else
// known. If both are 0, it is unknown, and indices below 2·len(groups) are kept.
func newRecordedStep(groups []rollout.Group, known int) *recordedStep {
	s := &recordedStep{step: groups[0].Step, groups: slices.Clone(groups), size: 1}
	prompts := cmp.Or(groups[0].Prompts, known)
	limit := cmp.Or(prompts, 2*len(groups))
	kept, next := limit <= maxPrompts, 0
	for i := range groups {
		kept = kept && groups[i].Index >= next && groups[i].Index < limit
		next = groups[i].Index + 1
	}
	for i := range s.groups {
		g := &s.groups[i]
		if !kept {
			g.Index = i
		}
		s.prompts = g.Index + 1
		s.size = max(s.size, len(g.Responses))
		for j := range g.Responses {
			s.longest = max(s.longest, g.Responses[j].Spans.Count(rollout.IsPolicy))
		}
	}
	if kept {
		s.prompts = max(s.prompts, prompts)
	}
	return s
}

// start returns a stream of the groups, marked as sampled in the given step with the step's weights.
func (s *recordedStep) start(step int) rollout.Stream {
	s.stream = make(chan rollout.Group, len(s.groups))
	for _, g := range s.groups {
		g.Step, g.Batch, g.Version = step, step, int64(step)
		for i := range g.Responses {
			g.Responses[i].Spans.SetVersion(int64(step))
		}
		s.stream <- g
	}
	close(s.stream)
	return s
}

// Groups implements rollout.Stream.
func (s *recordedStep) Groups() <-chan rollout.Group { return s.stream }

// Wait implements rollout.Stream.
func (s *recordedStep) Wait() (rollout.Stats, error) {
	return rollout.Stats{Failed: s.prompts - len(s.groups)}, nil
}

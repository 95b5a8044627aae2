package run

import (
	"cmp"
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// maxPrompts bounds the number of prompts that a file may claim.
const maxPrompts = 1 << 20

// recordedStep is a step whose groups are those of a rollouts file. It implements rollout.Stream.
type recordedStep struct {
	step    int // in which the groups were sampled; 0 if unknown
	prompts int // in the step, with or without a group
	size    int // responses of the largest group
	longest int // tokens of the longest response
	groups  []rollout.Group
	stream  chan rollout.Group
}

// newRecordedStep returns the step of these groups. Indices that ascend and are below the number of prompts,
// as in a run's file, are kept, and missing ones count as failed. The number is that of the first
// group, or else known; if both are 0, which means unknown, it is at most 2·len(groups). Other groups are
// numbered from 0.
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
		s.prompts, s.size = g.Index+1, max(s.size, len(g.Responses))
		for j := range g.Responses {
			s.longest = max(s.longest, len(g.Responses[j].IDs))
		}
	}
	if kept {
		s.prompts = max(s.prompts, prompts)
	}
	return s
}

// start returns the stream of the groups, marked as sampled in the given step with its weights.
func (s *recordedStep) start(step int) rollout.Stream {
	s.stream = make(chan rollout.Group, len(s.groups))
	for _, g := range s.groups {
		g.Step, g.Version = step, int64(step)
		for i := range g.Responses {
			g.Responses[i].Version = int64(step)
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

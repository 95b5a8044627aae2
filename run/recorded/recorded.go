// Package recorded turns the groups of a rollouts file into a step.
package recorded

import (
	"cmp"
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// maxPrompts bounds the number of prompts that a file may claim.
const maxPrompts = 1 << 20

// Step is a step whose groups are recorded. It implements rollout.Stream.
type Step struct {
	Step    int // in which the groups were sampled; 0 if unknown
	Prompts int // in the step, with or without a group
	Size    int // responses of the largest group
	Longest int // tokens of the longest response
	groups  []rollout.Group
	stream  chan rollout.Group
}

// New returns the step of these groups. Indices that ascend and are below the number of prompts,
// as in a run's file, are kept, and missing ones count as failed. The number is that of the first
// group, or else known; if both are 0, which means unknown, it is at most 2·len(groups). Other groups are
// numbered from 0.
func New(groups []rollout.Group, known int) *Step {
	s := &Step{Step: groups[0].Step, groups: slices.Clone(groups), Size: 1}
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
		s.Prompts, s.Size = g.Index+1, max(s.Size, len(g.Responses))
		for j := range g.Responses {
			s.Longest = max(s.Longest, len(g.Responses[j].IDs))
		}
	}
	if kept {
		s.Prompts = max(s.Prompts, prompts)
	}
	return s
}

// Start returns the stream of the groups, marked as sampled in the given step with its weights.
func (s *Step) Start(step int) rollout.Stream {
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
func (s *Step) Groups() <-chan rollout.Group { return s.stream }

// Wait implements rollout.Stream.
func (s *Step) Wait() (rollout.Stats, error) {
	return rollout.Stats{Failed: s.Prompts - len(s.groups)}, nil
}

package producer

import (
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// delivery decides when finished groups are delivered: at once, or with gate in prompt order
// when the step is complete. It is not safe for concurrent use.
type delivery struct {
	gate   bool             // Config.Gate
	only   []int            // indices of the step's prompts, ascending
	groups []*rollout.Group // with gate: the finished groups, by place in only; nil for a prompt without one
	count  int              // number of prompts whose group has finished or failed
}

func newDelivery(gate bool, only []int) *delivery {
	return &delivery{gate: gate, only: only, groups: make([]*rollout.Group, len(only))}
}

// add records the group of prompt index, or nil if it failed, and returns the groups to
// deliver now.
func (d *delivery) add(index int, g *rollout.Group) []*rollout.Group {
	d.count++
	ready := []*rollout.Group{g}
	if d.gate {
		place, _ := slices.BinarySearch(d.only, index)
		d.groups[place] = g
		if !d.complete() {
			return nil
		}
		ready = d.groups
	}
	return slices.DeleteFunc(ready, func(g *rollout.Group) bool { return g == nil })
}

// complete reports whether the group of every prompt has finished or failed.
func (d *delivery) complete() bool { return d.count == len(d.only) }

package producer

import (
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// delivery decides when finished groups are delivered: at once, or with gate in prompt order
// when the step is complete.
type delivery struct {
	gate   bool             // Config.Gate
	only   []int            // indices of the step's prompts, ascending
	groups []*rollout.Group // with gate: groups held back until the step is complete, by place in only
	count  int              // number of prompts that gave a group or failed
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

// complete reports whether every prompt gave a group or failed.
func (d *delivery) complete() bool { return d.count == len(d.only) }

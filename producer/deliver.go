package producer

import (
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// delivery puts finished groups into the order in which they are delivered.
type delivery struct {
	order string // of Config, like gate
	gate  bool
	only  []int            // indices of the prompts, ascending
	ended []bool           // by place in only: the prompt gave a group or failed
	early []*rollout.Group // by place in only: finished before a preceding group
	ready []*rollout.Group
	count int // of ended
	next  int // place of the next group in prompt order
}

func newDelivery(order string, gate bool, only []int) *delivery {
	return &delivery{order: order, gate: gate, only: only, ended: make([]bool, len(only)), early: make([]*rollout.Group, len(only))}
}

// add records the group of prompt index, or nil if it failed, and returns the groups to
// deliver now. They are valid until the next call.
func (d *delivery) add(index int, g *rollout.Group) []*rollout.Group {
	if !d.gate {
		d.ready = d.ready[:0]
	}
	place, _ := slices.BinarySearch(d.only, index)
	d.ended[place] = true
	d.count++
	if d.order == rollout.Arrival {
		d.append(g)
	} else {
		d.early[place] = g
		for ; d.next < len(d.ended) && d.ended[d.next]; d.next++ {
			d.append(d.early[d.next])
			d.early[d.next] = nil
		}
	}
	if d.gate && !d.complete() {
		return nil
	}
	return d.ready
}

func (d *delivery) append(g *rollout.Group) {
	if g != nil {
		d.ready = append(d.ready, g)
	}
}

// complete reports whether every prompt has ended.
func (d *delivery) complete() bool { return d.count == len(d.ended) }

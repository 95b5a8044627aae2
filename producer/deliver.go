package producer

import (
	"context"
	"time"

	"github.com/easyrl/easyrl/rollout"
)

// deliver sends the finished groups to out, in the configured order, until the
// period is complete or ctx ends.
func (r *run) deliver(ctx context.Context, out chan<- rollout.Group) error {
	total := len(r.period.Prompts)
	waiting := make([]*result, total) // by index, of those that came too early
	ready := make([]*rollout.Group, 0, total)
	next := 0
	for arrived := range total {
		var res result
		select {
		case res = <-r.results:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.cfg.Order == Arrival {
			ready = appendGroup(ready, &res)
		} else {
			waiting[res.index] = &res
			for next < total && waiting[next] != nil {
				ready = appendGroup(ready, waiting[next])
				waiting[next] = nil
				next++
			}
		}
		if r.cfg.Gate && arrived < total-1 {
			continue
		}
		for _, g := range ready {
			if err := r.send(ctx, out, g); err != nil {
				return err
			}
		}
		ready = ready[:0]
	}
	return nil
}

func appendGroup(ready []*rollout.Group, res *result) []*rollout.Group {
	if res.group == nil {
		return ready // failed, and recorded as such
	}
	return append(ready, res.group)
}

// send delivers one group.
func (r *run) send(ctx context.Context, out chan<- rollout.Group, g *rollout.Group) error {
	start := time.Now()
	select {
	case out <- *g:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum.Groups == 0 {
		r.sum.FirstGroup = start.Sub(r.start)
	}
	r.sum.Groups++
	r.sum.Blocked += time.Since(start)
	return nil
}

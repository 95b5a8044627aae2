package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// row is a line of the picture. Its spans are in whole microseconds, follow or
// enclose each other, and one that encloses others stands before them.
type row struct {
	track    trackInfo
	name     string
	pid, tid int
	spans    []*placed
}

// placed is a span on its row.
type placed struct {
	span
	pid, tid int
}

// process is the number of the process that the rows of single workers are of.
// Rows of lanes are a process of their own, so that a viewer can fold them.
const process = 1

// layout is the rows of all tracks, in their order, and the flows, each as the
// spans that it passes. A track without spans has a row too, unless its spans may
// be among those dropped.
func layout(tracks []trackInfo, spans []span, dropped bool) (rows []row, flows [][]pass) {
	of := make([][]*placed, len(tracks))
	var passes []pass
	for i := range spans {
		p := &placed{span: spans[i]}
		p.begin, p.end = max(p.begin, 0).Truncate(time.Microsecond), max(p.end, 0).Truncate(time.Microsecond)
		of[p.track] = append(of[p.track], p)
		for _, id := range p.flows {
			passes = append(passes, pass{p, id})
		}
	}
	for id, track := range tracks {
		if len(of[id]) == 0 && dropped {
			continue
		}
		if track.lanes {
			slices.SortStableFunc(of[id], func(a, b *placed) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) })
			rows = append(rows, lanes(track, of[id], len(rows)+2)...)
		} else {
			slices.SortStableFunc(of[id], func(a, b *placed) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end)) })
			nest(of[id])
			rows = append(rows, row{track, track.name, process, len(rows) + 2, of[id]})
		}
	}
	for _, r := range rows {
		for _, p := range r.spans {
			p.pid, p.tid = r.pid, r.tid
		}
	}
	return rows, connect(passes)
}

// nest makes spans, sorted by their beginning, follow or enclose each other: one
// that goes on after what encloses it is cut there.
func nest(spans []*placed) {
	var open []*placed
	var free time.Duration // since when there is room on the innermost level
	for _, p := range spans {
		for len(open) > 0 && open[len(open)-1].end <= p.begin {
			free = open[len(open)-1].end
			open = open[:len(open)-1]
		}
		p.widen(free)
		if len(open) > 0 {
			last := open[len(open)-1].end
			p.begin, p.end = min(p.begin, last), min(p.end, last)
		}
		open, free = append(open, p), p.begin
		if len(p.flows) > 0 {
			free += time.Microsecond // so that a flow at its beginning is in p alone
		}
	}
}

// widen makes p begin at the time free at the earliest and, where a flow passes
// it, last a microsecond: viewers find no shorter one.
func (p *placed) widen(free time.Duration) {
	p.begin = max(p.begin, free)
	least := p.begin
	if len(p.flows) > 0 {
		least += time.Microsecond
	}
	p.end = max(p.end, least)
}

// lanes puts spans, sorted by their beginning, on as few rows as hold them without
// overlap, of numbers from tid on. A flow keeps its row from its first span to its
// last.
func lanes(track trackInfo, spans []*placed, tid int) []row {
	ends := map[uint64]time.Duration{}
	for _, p := range spans {
		if len(p.flows) > 0 {
			ends[p.flows[0]] = max(ends[p.flows[0]], p.end)
		}
	}
	out := []row{{track, track.name, tid, tid, nil}}
	free, taken := []time.Duration{0}, []time.Duration{0} // until when each row has a span, and is some flow's
	home := map[uint64]int{}
	for _, p := range spans {
		lane, ok := -1, false
		if len(p.flows) > 0 {
			if lane, ok = home[p.flows[0]]; ok && free[lane] > p.begin+2*time.Microsecond {
				ok = false // the flow's spans overlap
			}
		}
		if !ok {
			lane = slices.IndexFunc(taken, func(until time.Duration) bool { return until <= p.begin })
		}
		if lane < 0 {
			lane = len(out)
			out = append(out, row{track, fmt.Sprintf("%s (%d)", track.name, lane+1), tid, tid + lane, nil})
			free, taken = append(free, 0), append(taken, 0)
		}
		p.widen(free[lane])
		free[lane], taken[lane] = p.end, max(taken[lane], p.end)
		if len(p.flows) > 0 {
			home[p.flows[0]] = lane
			taken[lane] = max(taken[lane], ends[p.flows[0]])
		}
		out[lane].spans = append(out[lane].spans, p)
	}
	return out
}

// pass is a flow at one of its spans.
type pass struct {
	*placed
	id uint64
}

// connect finds the flows: each goes from a span that opens it to the last before
// the next that does. What nothing opened, or led nowhere, is left out, so that
// each start has its end.
func connect(passes []pass) (flows [][]pass) {
	passes = slices.DeleteFunc(passes, func(p pass) bool { return p.end == p.begin })
	slices.SortStableFunc(passes, func(a, b pass) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.begin, b.begin)) })
	for len(passes) > 0 {
		n := 1
		for n < len(passes) && passes[n].id == passes[0].id && !passes[n].opens {
			n++
		}
		if passes[0].opens && n > 1 {
			flows = append(flows, passes[:n])
		}
		passes = passes[n:]
	}
	return flows
}

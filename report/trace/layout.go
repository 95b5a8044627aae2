package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// row is one line of the rendered trace. Its spans follow or enclose each other, and a span comes after
// the spans that enclose it. Their times are multiples of a microsecond.
type row struct {
	track    trackInfo
	name     string
	pid, tid int
	spans    []*placed
}

// placed is a span placed on a row.
type placed struct {
	span
	pid, tid int
}

// process is the process number of the rows of single workers. Each lanes track is
// a process of its own, so that a viewer can fold it.
const process = 1

// layout returns the rows of all tracks, in track order, and the flows, each as the
// spans it passes. A track without spans gets a row too, unless dropped says that its
// spans may have been dropped.
func layout(tracks []trackInfo, spans []span, dropped bool) (rows []row, flows [][]pass) {
	byTrack := make([][]*placed, len(tracks))
	var passes []pass
	for i := range spans {
		p := &placed{span: spans[i]}
		p.begin, p.end = max(p.begin, 0).Truncate(time.Microsecond), max(p.end, 0).Truncate(time.Microsecond)
		byTrack[p.track] = append(byTrack[p.track], p)
		for _, id := range p.flows {
			passes = append(passes, pass{p, id})
		}
	}
	for id, track := range tracks {
		if len(byTrack[id]) == 0 && dropped {
			continue
		}
		if track.lanes {
			slices.SortStableFunc(byTrack[id], func(a, b *placed) int {
				return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
			})
			rows = append(rows, lanes(track, byTrack[id], len(rows)+2)...)
		} else {
			slices.SortStableFunc(byTrack[id], func(a, b *placed) int {
				return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end))
			})
			nest(byTrack[id])
			rows = append(rows, row{track, track.name, process, len(rows) + 2, byTrack[id]})
		}
	}
	for _, r := range rows {
		for _, p := range r.spans {
			p.pid, p.tid = r.pid, r.tid
		}
	}
	return rows, connect(passes)
}

// nest makes spans, sorted by their beginning, follow or enclose each other. It ends a span with the
// span that encloses it if that ends earlier.
func nest(spans []*placed) {
	var open []*placed
	var free time.Duration // earliest free time on the innermost level
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
			free += time.Microsecond // a flow at its beginning then binds to p alone
		}
	}
}

// widen makes p begin at free or later and, if a flow passes it, last at least a microsecond, because
// viewers do not attach a flow to a shorter span.
func (p *placed) widen(free time.Duration) {
	p.begin = max(p.begin, free)
	minEnd := p.begin
	if len(p.flows) > 0 {
		minEnd += time.Microsecond
	}
	p.end = max(p.end, minEnd)
}

// lanes places the spans of a track, sorted by their beginning, on rows numbered from tid. Spans of one
// row do not overlap. A flow reserves its row from its first span to its last. Each span takes the
// first row that is free.
func lanes(track trackInfo, spans []*placed, tid int) []row {
	ends := map[uint64]time.Duration{} // by flow: end of its last span
	for _, p := range spans {
		if len(p.flows) > 0 {
			ends[p.flows[0]] = max(ends[p.flows[0]], p.end)
		}
	}
	out := []row{{track, track.name, tid, tid, nil}}
	free := []time.Duration{0}  // by row: end of its last span
	taken := []time.Duration{0} // by row: end of its last span or reservation
	home := map[uint64]int{}    // by flow: its row
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

// pass is one of the spans that a flow passes, with the flow's ID.
type pass struct {
	*placed
	id uint64
}

// connect builds the flows. Each runs from a span that opens it to the last span before the next
// opening of the same ID. connect omits passes before the first opening and flows of only one span, so
// that each flow has a start and an end.
func connect(passes []pass) (flows [][]pass) {
	passes = slices.DeleteFunc(passes, func(p pass) bool { return p.end == p.begin })
	slices.SortStableFunc(passes, func(a, b pass) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.begin, b.begin))
	})
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

package attention

import "slices"

// Part is a part of a layout: some of its targets with the rows that they need.
type Part struct {
	Layout  *Layout
	Targets []int // for each target of Layout, its index in the layout that was split; ascending
}

// Split divides the targets of l among parts of at most the given number of rows. A part holds
// complete segments with targets and their ancestors, so several parts may repeat an ancestor. A segment
// that needs more rows is a part of its own. The parts share no memory with l and have no leaves.
func (l *Layout) Split(rows int) []Part {
	targets := make([][]int, len(l.Segments)) // indices of targets by segment
	for i := range l.Targets {
		s := l.Targets[i].Segment
		targets[s] = append(targets[s], i)
	}
	var parts []Part
	var now partial
	for s := range l.Segments {
		if len(targets[s]) == 0 {
			continue
		}
		if len(now.targets) > 0 && now.rows+now.missing(l, s) > rows {
			parts = append(parts, now.part(l))
			now = partial{}
		}
		now.add(l, s)
		now.targets = append(now.targets, targets[s]...)
	}
	if len(now.targets) > 0 {
		parts = append(parts, now.part(l))
	}
	return parts
}

// Divisible reports whether parts of l can have fewer rows than l.
func (l *Layout) Divisible() bool {
	for _, p := range l.Split(1) {
		if p.Layout.Rows() >= l.Rows() {
			return false
		}
	}
	return true
}

// partial is a part whose rows are not copied yet.
type partial struct {
	segments map[int]bool // indices of segments, ancestors included
	targets  []int
	rows     int
}

// missing returns the number of rows that segment s and its ancestors would add.
func (p *partial) missing(l *Layout, s int) int {
	n := 0
	for ; s >= 0 && !p.segments[s]; s = int(l.Segments[s].Parent) {
		n += int(l.Segments[s].Len)
	}
	return n
}

// add adds segment s and its ancestors.
func (p *partial) add(l *Layout, s int) {
	p.rows += p.missing(l, s)
	if p.segments == nil {
		p.segments = map[int]bool{}
	}
	for ; s >= 0 && !p.segments[s]; s = int(l.Segments[s].Parent) {
		p.segments[s] = true
	}
}

// part returns the part, with copies of its rows, segments and targets.
func (p *partial) part(l *Layout) Part {
	slices.Sort(p.targets)
	out := Part{&Layout{}, p.targets}
	shift := make([]int32, len(l.Segments)) // row in the part minus row in l, by segment
	index := make([]int32, len(l.Segments)) // index in the part, by segment
	for s, segment := range l.Segments {
		if !p.segments[s] {
			continue
		}
		shift[s] = int32(out.Layout.Rows()) - segment.Start
		index[s] = int32(len(out.Layout.Segments))
		from, to := segment.Start, segment.Start+segment.Len
		out.Layout.Tokens = append(out.Layout.Tokens, l.Tokens[from:to]...)
		out.Layout.Positions = append(out.Layout.Positions, l.Positions[from:to]...)
		segment.Start += shift[s]
		if segment.Parent >= 0 {
			segment.Parent = index[segment.Parent]
		}
		out.Layout.Segments = append(out.Layout.Segments, segment)
	}
	for _, i := range p.targets {
		t := l.Targets[i]
		t.Row += shift[l.SegmentOf(int(t.Row))]
		t.Segment = index[t.Segment]
		out.Layout.Targets = append(out.Layout.Targets, t)
	}
	return out
}

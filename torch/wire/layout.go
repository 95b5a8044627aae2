package wire

import (
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/npu"
)

// Layout returns the arrays of a layout: "tokens" and "positions" of each row, "segments"
// (start, length, parent), and "rows" and "targets", the row and the token of each target.
func Layout(l *attention.Layout) Body {
	b := Body{Data: make([]byte, 0, valueSize*(2*len(l.Tokens)+3*len(l.Segments)+2*len(l.Targets)))}
	b.AddInt32s("tokens", len(l.Tokens), func(i int) int32 { return l.Tokens[i] })
	b.AddInt32s("positions", len(l.Positions), func(i int) int32 { return l.Positions[i] })
	b.AddInt32s("segments", 3*len(l.Segments), func(i int) int32 {
		s := l.Segments[i/3]
		return [...]int32{s.Start, s.Len, s.Parent}[i%3]
	})
	b.AddInt32s("rows", len(l.Targets), func(i int) int32 { return l.Targets[i].Row })
	b.AddInt32s("targets", len(l.Targets), func(i int) int32 { return l.Targets[i].Token })
	return b
}

// Layout returns the layout in the frame's arrays. Its targets have only rows and tokens.
func (f *Frame) Layout() (*attention.Layout, error) {
	l := &attention.Layout{Tokens: f.Int32s("tokens"), Positions: f.Int32s("positions")}
	segments := f.Int32s("segments")
	rows := f.Int32s("rows")
	targets := f.Int32s("targets")
	if len(segments)%3 != 0 || len(rows) != len(targets) {
		return nil, fmt.Errorf("layout: %d values of segments, %d rows and %d targets, expected a multiple of 3, "+
			"and as many rows as targets",
			len(segments), len(rows), len(targets))
	}
	for i := 0; i < len(segments); i += 3 {
		l.Segments = append(l.Segments, npu.Segment{Start: segments[i], Len: segments[i+1], Parent: segments[i+2]})
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	for i, row := range rows {
		if row < 0 || int(row) >= len(l.Tokens) || targets[i] < 0 {
			return nil, fmt.Errorf("layout: target %d is token %d in row %d, expected a row below %d", i, targets[i],
				row, len(l.Tokens))
		}
		l.Targets = append(l.Targets, attention.Target{Row: row, Token: targets[i]})
	}
	return l, nil
}

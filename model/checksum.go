package model

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/npu/host"
)

func (p *Param) shape() host.Shape { return host.Shape{Rows: p.Rows, Cols: p.Cols} }

// sums allocates room for the panel sums of w.
func (w *Weights) sums() host.Sums {
	s := make(host.Sums, len(w.Params))
	for i := range w.Params {
		s[w.Params[i].Name] = make([]uint64, w.Params[i].shape().Panels())
	}
	return s
}

// byName returns the parameters of w sorted by name.
func (w *Weights) byName() []*Param {
	all := make([]*Param, len(w.Params))
	for i := range w.Params {
		all[i] = &w.Params[i]
	}
	slices.SortFunc(all, func(a, b *Param) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// readPanels sums the panels of p and, unless dst is nil, copies them to dst.
func (w *Weights) readPanels(dst []float32, p *Param, sums []uint64) {
	run := p.shape().PanelLen()
	if mem := p.Buffer.Float32s(); mem != nil {
		host.CopySum(dst, mem, run, sums, w.dev.Threads())
		return
	}
	var vals, laid []float32
	for first, m := range w.blocks(p) {
		vals = w.get(vals, m)
		laid = p.shape().Pack(laid, vals)
		var to []float32
		at := p.shape().PanelAt(first)
		if dst != nil {
			to = dst[at*run : at*run+len(laid)]
		}
		host.CopySum(to, laid, run, sums[at:at+len(laid)/run], w.dev.Threads())
	}
}

// Checksum returns the checksum of the values. It is the same on every device; see
// host.Sums.
func (w *Weights) Checksum() string {
	s := w.sums()
	for i := range w.Params {
		w.readPanels(nil, &w.Params[i], s[w.Params[i].Name])
	}
	return s.Total()
}

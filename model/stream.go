package model

import (
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/panels"
	"github.com/easyrl/easyrl/npu/host"
)

// The metadata of a published file: its checksum; and where it is of panels, what
// names the shapes that are behind them.
const (
	checksumKey = "easyrl.checksum"
	shapesKey   = "easyrl.shapes"
)

// packedLen is about the number of values of a block of panels.
const packedLen = 1 << 19

// shapes names the parameters and their shapes.
func (w *Weights) shapes() string {
	var all strings.Builder
	for _, p := range w.byName() {
		fmt.Fprintln(&all, p.Name, p.Rows, p.Cols)
	}
	return fmt.Sprintf("%016x", xxh3.HashString(all.String()))
}

// ReadStream fills w from a safetensors stream of size bytes, -1 where that is not
// known, which has exactly w's tensors, in any order. It reads r to its end, and
// returns what Checksum would; a stream that carries another one is refused. After
// an error w holds some of the values.
func (w *Weights) ReadStream(r io.Reader, size int64) (checksum string, err error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	return w.readStream(s)
}

// ReadFile is ReadStream from a file among files.
func (w *Weights) ReadFile(files *checkpoint.Files, path string) (checksum string, err error) {
	err = files.Read(path, func(s *checkpoint.Stream) (err error) {
		checksum, err = w.readStream(s)
		return err
	})
	return checksum, err
}

func (w *Weights) readStream(s *checkpoint.Stream) (checksum string, err error) {
	places, err := w.places(s)
	if err != nil {
		return "", err
	}
	sums := w.sums()
	if s.Metadata()[panels.LayoutKey] == "" {
		err = s.Blocks(func(t checkpoint.Tensor) int { return places[t.Name].shape().Block(blockValues) }, func(t checkpoint.Tensor, first int, vals []float32) error {
			return w.set(places[t.Name], first, vals, sums[t.Name])
		})
	} else {
		err = s.Blocks(func(t checkpoint.Tensor) int { return places[t.Name].shape().Block(packedLen) }, func(t checkpoint.Tensor, first int, vals []float32) error {
			return w.setPacked(places[t.Name], first, vals, sums[t.Name])
		})
	}
	if err == nil {
		err = w.dev.Sync()
	}
	if err != nil {
		return "", err
	}
	checksum = sums.Total()
	if want := s.Metadata()[checksumKey]; want != "" && want != checksum {
		return "", fmt.Errorf("load weights: checksum %s, expected %.40q", checksum, want)
	}
	return checksum, nil
}

// places are w's parameters by name, which must be the tensors of s in their shapes.
func (w *Weights) places(s *checkpoint.Stream) (map[string]*Param, error) {
	layout, shapes := s.Metadata()[panels.LayoutKey], s.Metadata()[shapesKey]
	if layout != "" && layout != panels.Layout {
		return nil, fmt.Errorf("load weights: laid out as %.40q, expected rows or %s", layout, panels.Layout)
	}
	places := make(map[string]*Param, len(w.Params))
	for i := range w.Params {
		p := &w.Params[i]
		want := p.shape().RowShape()
		if layout != "" {
			want = p.shape().PanelShape()
		}
		if _, err := p.findShape("", s, want); err != nil {
			return nil, err
		}
		places[p.Name] = p
	}
	for _, t := range s.Tensors() {
		if places[t.Name] == nil {
			return nil, fmt.Errorf("load weights: tensor %s has no place in the %s decoder, expected its %d tensors only", t.Name, w.Config.Type, len(w.Params))
		}
	}
	if layout != "" && shapes != w.shapes() {
		return nil, fmt.Errorf("load weights: shapes %.40q, expected %s: another model", shapes, w.shapes())
	}
	return places, nil
}

// setPacked puts a block of panels of p, all finite, into p, and their sums into
// those of p. It begins at value first of the panels, which is value first of the
// rows too.
func (w *Weights) setPacked(p *Param, first int, vals []float32, sums []uint64) error {
	run := p.shape().PanelLen()
	at, n := first/run, len(vals)/run
	part := p.shape().Part(at, n)
	mem := p.Buffer.Float32s()
	if mem == nil { // the host cannot write the layout
		if err := p.padded(part.CheckPadding(vals)); err != nil {
			return err
		}
		return w.set(p, first, part.Unpack(vals), sums)
	}
	own := mem[first : first+len(vals)]
	if !host.CopySum(own, vals, run, sums[at:at+n], w.dev.Threads()) {
		if err := p.checkFinite(part.Unpack(own), first); err != nil {
			return err
		}
	}
	return p.padded(part.CheckPadding(own))
}

// padded names p in what is wrong with its padding.
func (p *Param) padded(err error) error {
	if err != nil {
		return fmt.Errorf("load weights: tensor %s: %w", p.Name, err)
	}
	return nil
}

// checkFinite refuses NaN and infinity among values from value first of p on.
func (p *Param) checkFinite(vals []float32, first int) error {
	for j, v := range vals {
		if v-v != 0 {
			return fmt.Errorf("load weights: tensor %s: value %d is %v: %w", p.Name, first+j, v, ErrNotFinite)
		}
	}
	return nil
}

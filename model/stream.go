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

// Metadata keys of a published file: its checksum and, in a packed file, a hash of
// the row-major shapes.
const (
	checksumKey = "easyrl.checksum"
	shapesKey   = "easyrl.shapes"
)

// packedLen is the approximate number of values in a block of panels.
const packedLen = 1 << 19

// shapes returns a hash of the parameters' names and shapes.
func (w *Weights) shapes() string {
	var all strings.Builder
	for _, p := range w.byName() {
		fmt.Fprintln(&all, p.Name, p.Rows, p.Cols)
	}
	return fmt.Sprintf("%016x", xxh3.HashString(all.String()))
}

// ReadStream fills w from a safetensors stream of size bytes; size is -1 if it is
// unknown. The stream must have exactly the tensors of w, in any order. ReadStream
// reads r to its end, verifies the checksum that the stream carries, if any, and
// returns what Checksum would. After an error, w holds some of the new values.
func (w *Weights) ReadStream(r io.Reader, size int64) (checksum string, err error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	return w.readStream(s)
}

// ReadFile does what ReadStream does, from a file in files.
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

// places returns the parameters of w by name. The tensors of s must be the same ones
// in the same shapes.
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

// setPacked writes a block of panels to p and their sums to the sums of p. It rejects
// values that are not finite. first is the index of the block's first value, in the
// panels and in the rows alike.
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

// padded adds the name of p to an error about its padding.
func (p *Param) padded(err error) error {
	if err != nil {
		return fmt.Errorf("load weights: tensor %s: %w", p.Name, err)
	}
	return nil
}

// checkFinite rejects NaN and infinity. vals start at value first of p.
func (p *Param) checkFinite(vals []float32, first int) error {
	for j, v := range vals {
		if v-v != 0 {
			return fmt.Errorf("load weights: tensor %s: value %d is %v: %w", p.Name, first+j, v, ErrNotFinite)
		}
	}
	return nil
}

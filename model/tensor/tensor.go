// Package tensor describes the tensors of a decoder and moves their values between a
// device and the host.
package tensor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/host"
)

// ErrNotFinite marks weights that contain NaN or infinity.
var ErrNotFinite = errors.New("not finite")

// Finder looks up safetensors by name in a file or a folder of shards.
type Finder interface {
	Tensor(name string) (checkpoint.Tensor, bool)
}

// Param is one tensor of a decoder under its Hugging Face name. Cols is 0 for a
// vector of Rows values.
type Param struct {
	Name       string
	Rows, Cols int
	// Std is the standard deviation of the random initialization. 0 stands for ones
	// (norms) and zeros (biases).
	Std float64
	// Buffer holds the values in the device's layout.
	Buffer npu.Buffer
	// Whole is the tensor that this one is a part of.
	Whole Whole
	Layer int // index of the layer in the decoder, or in its part; -1 for none
	// Terms is how many times a unit contributes to the parameter's gradient; 0 means once.
	Terms int
}

// Whole is the shape of a tensor, with the place of a part in it. Cols is 0 for a vector.
type Whole struct {
	Rows, Cols int
	Row, Col   int // position of the part's first value
	Share      Share
}

// Share says how tensor-parallel ranks share a tensor.
type Share uint8

// The ways to share a tensor.
const (
	Divided Share = iota // each rank has a part and its gradient
	Copied               // each rank has all values and their gradient
	Summed               // each rank has all values; their gradient is the sum of the ranks' gradients
)

// Extract copies p from the row-major values of the whole tensor to dst, row-major.
func (p *Param) Extract(dst, whole []float32) {
	p.rows(func(inPart, inWhole, n int) { copy(dst[inPart:inPart+n], whole[inWhole:]) })
}

// Insert copies the row-major values of p to the whole tensor.
func (p *Param) Insert(whole, part []float32) {
	p.rows(func(inPart, inWhole, n int) { copy(whole[inWhole:], part[inPart:inPart+n]) })
}

// rows calls f for each run of n values that are adjacent in p and in the whole tensor: once for
// complete rows, else row by row. inPart and inWhole are the indices of the run's first value.
func (p *Param) rows(f func(inPart, inWhole, n int)) {
	w := &p.Whole
	if w.Cols == 0 || p.Cols == w.Cols {
		cols := max(p.Cols, 1)
		f(0, w.Row*cols, p.Rows*cols)
		return
	}
	for r := range p.Rows {
		f(r*p.Cols, (w.Row+r)*w.Cols+w.Col, p.Cols)
	}
}

// Decay reports whether weight decay applies. It applies to matrices, not to norms
// and biases.
func (p *Param) Decay() bool { return p.Cols > 0 }

// matrix returns p as a matrix, with Cols 0 for a vector.
func (p *Param) matrix() npu.Matrix { return npu.Matrix{Buffer: p.Buffer, Rows: p.Rows, Cols: p.Cols} }

// Shape returns the shape of p in host memory.
func (p *Param) Shape() host.Shape { return host.Shape{Rows: p.Rows, Cols: p.Cols} }

// Find returns the tensor of p from safetensors whose names begin with prefix.
func (p *Param) Find(prefix string, f Finder) (checkpoint.Tensor, error) {
	return p.FindShape(prefix, f, p.Shape().RowShape())
}

// FindShape is Find for a tensor of shape want.
func (p *Param) FindShape(prefix string, f Finder, want []int) (checkpoint.Tensor, error) {
	t, ok := f.Tensor(prefix + p.Name)
	if !ok {
		return t, fmt.Errorf("load weights: tensor %s is missing", prefix+p.Name)
	}
	if !slices.Equal(t.Shape, want) {
		return t, fmt.Errorf("load weights: tensor %s has shape %v, expected %v from config.json", prefix+p.Name,
			t.Shape, want)
	}
	return t, nil
}

// paddingError adds the name of p to an error of its padding. It returns nil for nil.
func (p *Param) paddingError(err error) error {
	if err != nil {
		return fmt.Errorf("load weights: tensor %s: %w", p.Name, err)
	}
	return nil
}

// CheckFinite rejects NaN and infinity. vals start at value first of p.
func (p *Param) CheckFinite(vals []float32, first int) error {
	for j, v := range vals {
		if v-v != 0 { // NaN or infinite
			return fmt.Errorf("load weights: tensor %s: value %d is %v: %w", p.Name, first+j, v, ErrNotFinite)
		}
	}
	return nil
}

// Params are the tensors of a decoder.
type Params []Param

// Sums allocates room for the panel sums of all tensors.
func (ps Params) Sums() host.Sums {
	s := make(host.Sums, len(ps))
	for i := range ps {
		s[ps[i].Name] = make([]uint64, ps[i].Shape().Panels())
	}
	return s
}

// Names returns the names of the tensors.
func (ps Params) Names() []string {
	names := make([]string, len(ps))
	for i := range ps {
		names[i] = ps[i].Name
	}
	return names
}

// ByName returns the tensors sorted by name.
func (ps Params) ByName() []*Param {
	all := make([]*Param, len(ps))
	for i := range ps {
		all[i] = &ps[i]
	}
	slices.SortFunc(all, func(a, b *Param) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Shapes returns a hash of the tensors' names and shapes.
func (ps Params) Shapes() string {
	var all strings.Builder
	for _, p := range ps.ByName() {
		fmt.Fprintln(&all, p.Name, p.Rows, p.Cols)
	}
	return fmt.Sprintf("%016x", xxh3.HashString(all.String()))
}

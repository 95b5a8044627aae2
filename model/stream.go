package model

import (
	"fmt"
	"io"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/tensor"
)

// Metadata keys of a published file: its checksum and, in a packed file, a hash of
// the row-major shapes.
const (
	checksumKey = "easyrl.checksum"
	shapesKey   = "easyrl.shapes"
)

// packedLen is the approximate number of values in a block of panels.
const packedLen = 1 << 19

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

// readStream does what ReadStream does, from an open stream.
func (w *Weights) readStream(s *checkpoint.Stream) (checksum string, err error) {
	params, err := w.paramsOf(s)
	if err != nil {
		return "", err
	}
	sums := w.Params.Sums()
	if s.Metadata()[layoutKey] == "" {
		err = s.Blocks(func(t checkpoint.Tensor) int { return params[t.Name].Shape().Block(tensor.BlockValues) },
			func(t checkpoint.Tensor, first int, vals []float32) error {
				return w.dev.Set(params[t.Name], first, vals, sums[t.Name])
			})
	} else {
		err = s.Blocks(func(t checkpoint.Tensor) int { return params[t.Name].Shape().Block(packedLen) },
			func(t checkpoint.Tensor, first int, vals []float32) error {
				return w.dev.SetPacked(params[t.Name], first, vals, sums[t.Name])
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
		return "", fmt.Errorf("load weights: checksum is %s, expected %.40q", checksum, want)
	}
	return checksum, nil
}

// paramsOf returns the parameters of w by name. It returns an error unless s has the same tensors
// in the same shapes.
func (w *Weights) paramsOf(s *checkpoint.Stream) (map[string]*tensor.Param, error) {
	layout, shapes := s.Metadata()[layoutKey], s.Metadata()[shapesKey]
	if layout != "" && layout != PanelLayout {
		return nil, fmt.Errorf("load weights: layout is %.40q, expected row-major or %s", layout, PanelLayout)
	}
	params := make(map[string]*tensor.Param, len(w.Params))
	for i := range w.Params {
		p := &w.Params[i]
		want := p.Shape().RowShape()
		if layout != "" {
			want = p.Shape().PanelShape()
		}
		if _, err := p.FindShape("", s, want); err != nil {
			return nil, err
		}
		params[p.Name] = p
	}
	for _, t := range s.Tensors() {
		if params[t.Name] == nil {
			return nil, fmt.Errorf("load weights: tensor %s is not one of the %s decoder's %d tensors", t.Name,
				w.Config.Type, len(w.Params))
		}
	}
	if layout != "" && shapes != w.Params.Shapes() {
		return nil, fmt.Errorf("load weights: shapes are %.40q, expected %s: different model", shapes,
			w.Params.Shapes())
	}
	return params, nil
}

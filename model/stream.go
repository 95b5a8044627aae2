package model

import (
	"fmt"
	"io"
	"os"

	"github.com/easyrl/easyrl/checkpoint"
)

// checksumKey is the metadata under which a published file has its checksum.
const checksumKey = "easyrl.checksum"

// ReadStream fills w from a safetensors stream of size bytes, -1 where that is not
// known, which has exactly w's tensors, in any order. It reads r to its end, and
// returns what Checksum would; a stream that carries another one is refused. After
// an error w holds some of the values.
func (w *Weights) ReadStream(r io.Reader, size int64) (checksum string, err error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	places, err := w.places(s.Tensors())
	if err != nil {
		return "", err
	}
	param := func(t checkpoint.Tensor) *Param { return &w.Params[places[t.Name]] }
	err = s.Blocks(func(t checkpoint.Tensor) int { return param(t).blockLen() }, func(t checkpoint.Tensor, first int, vals []float32) error {
		return w.set(param(t), first, vals)
	})
	if err == nil {
		err = w.dev.Sync()
	}
	if err != nil {
		return "", err
	}
	tensors, inOrder := s.Tensors(), true // then the stream's data is what the checksum is of
	for i, at := range w.byName() {
		t := tensors[i]
		inOrder = inOrder && places[t.Name] == at && t.DType == checkpoint.F32
	}
	checksum = s.Sum()
	if !inOrder {
		checksum = w.Checksum()
	}
	if want := s.Metadata()[checksumKey]; want != "" && want != checksum {
		return "", fmt.Errorf("load weights: checksum %s, expected %.40q", checksum, want)
	}
	return checksum, nil
}

// places says which parameter each tensor is, where they are exactly w's.
func (w *Weights) places(tensors []checkpoint.Tensor) (map[string]int, error) {
	byName := make(named, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	places := make(map[string]int, len(w.Params))
	for i := range w.Params {
		p := &w.Params[i]
		if _, err := p.find("", byName); err != nil {
			return nil, err
		}
		places[p.Name] = i
	}
	for _, t := range tensors {
		if _, ok := places[t.Name]; !ok {
			return nil, fmt.Errorf("load weights: tensor %s has no place in the %s decoder, expected its %d tensors only", t.Name, w.Config.Type, len(w.Params))
		}
	}
	return places, nil
}

// named are tensors by name.
type named map[string]checkpoint.Tensor

// Tensor implements Tensors.
func (n named) Tensor(name string) (checkpoint.Tensor, bool) {
	t, ok := n[name]
	return t, ok
}

// ReadFile is ReadStream from a file. One that is written meanwhile is a mix, which
// its checksum gives away.
func (w *Weights) ReadFile(path string) (checksum string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: %s, expected a file", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	if checksum, err = w.ReadStream(f, info.Size()); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return checksum, nil
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

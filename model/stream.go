package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/easyrl/easyrl/checkpoint"
)

// ReadStream fills w from a safetensors stream of size bytes, -1 where that is not
// known, which has exactly w's tensors, in any order. It reads r to its end, and
// returns what Checksum would. After an error w holds some of the values.
func (w *Weights) ReadStream(r io.Reader, size int64) (checksum string, err error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	defer s.Close()
	places, err := w.places(s.Tensors())
	if err != nil {
		return "", err
	}
	var vals []float32
	order, inOrder := w.byName(), true // then the stream's data is what the checksum is of
	for i := 0; ; i++ {
		t, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		at := places[t.Name]
		inOrder = inOrder && at == order[i] && t.DType == checkpoint.F32
		p := &w.Params[at]
		vals, err = w.fill(p, vals, func(vals []float32, first int) error {
			if err := s.Read(vals); err != nil {
				return err
			}
			return p.checkFinite(vals, first)
		})
		if err != nil {
			return "", err
		}
	}
	if err := w.dev.Sync(); err != nil {
		return "", err
	}
	if inOrder {
		return fmt.Sprintf("%016x", s.Sum()), nil
	}
	return w.Checksum(), nil
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

// ReadFile is ReadStream from a file, which is mapped into memory.
func (w *Weights) ReadFile(path string) (checksum string, err error) {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	var tensors []checkpoint.Tensor
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		tensors = append(tensors, t)
	}
	if _, err := w.places(tensors); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	h := newHash()
	if err := w.load("", f, h.add); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return h.String(), nil
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

// hash is the XXH64 of values as little-endian float32.
type hash struct {
	sum *xxhash.Digest
	raw []byte
}

func newHash() *hash { return &hash{sum: xxhash.New(), raw: make([]byte, 1<<15)} }

func (h *hash) add(vals []float32) {
	for len(vals) > 0 {
		n := min(len(vals), len(h.raw)/4)
		raw := h.raw[:4*n]
		for i, v := range vals[:n] {
			binary.LittleEndian.PutUint32(raw[4*i:4*i+4], math.Float32bits(v))
		}
		_, _ = h.sum.Write(raw) // never fails
		vals = vals[n:]
	}
}

// String is the hash in hexadecimal.
func (h *hash) String() string { return fmt.Sprintf("%016x", h.sum.Sum64()) }

package model

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/easyrl/easyrl/checkpoint"
)

// Snapshot is one published version of the weights. It is read-only while it is
// published: instances of the same process share it without copying.
type Snapshot struct {
	version int64
	weights *Weights
	sum     func() string
}

// NewSnapshot publishes w as a version. w must not change while anyone reads it.
func NewSnapshot(w *Weights, version int64) *Snapshot {
	return &Snapshot{version: version, weights: w, sum: sync.OnceValue(w.Checksum)}
}

// Version is the number of the version.
func (s *Snapshot) Version() int64 { return s.version }

// Weights are the values, read-only.
func (s *Snapshot) Weights() *Weights { return s.weights }

// Checksum is Weights.Checksum, computed once.
func (s *Snapshot) Checksum() string { return s.sum() }

// WriteSafetensors streams the weights as a safetensors file.
func (s *Snapshot) WriteSafetensors(w io.Writer) error {
	return checkpoint.WriteSafetensors(w, s.weights.Sources(), map[string]string{"format": "pt", "version": fmt.Sprint(s.version)})
}

// Checksum is the XXH64, in hexadecimal, of all values as little-endian
// float32, tensor after tensor, row-major: the same on every device.
func (w *Weights) Checksum() string {
	h := xxhash.New()
	var vals []float32
	var raw []byte
	for i := range w.Params {
		for _, m := range w.blocks(&w.Params[i]) {
			n := m.Rows * max(m.Cols, 1)
			vals, raw = slices.Grow(vals[:0], n)[:n], slices.Grow(raw[:0], 4*n)[:4*n]
			if m.Cols == 0 {
				w.dev.Download(vals, m.Buffer)
			} else {
				w.dev.UnpackMatrix(vals, m)
			}
			for j, v := range vals {
				binary.LittleEndian.PutUint32(raw[4*j:], math.Float32bits(v))
			}
			_, _ = h.Write(raw) // never fails
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

package model

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

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

// byName are the parameters in the order of their names.
func (w *Weights) byName() []int {
	order := make([]int, len(w.Params))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(w.Params[a].Name, w.Params[b].Name) })
	return order
}

// Checksum is the XXH64, in hexadecimal, of all values as little-endian
// float32, row-major, tensor after tensor in the order of their names: the same on
// every device, and the XXH64 of the data of a safetensors file of them.
func (w *Weights) Checksum() string {
	h := newHash()
	var vals []float32
	for _, i := range w.byName() {
		for _, m := range w.blocks(&w.Params[i]) {
			n := m.Rows * max(m.Cols, 1)
			vals = slices.Grow(vals[:0], n)[:n]
			if m.Cols == 0 {
				w.dev.Download(vals, m.Buffer)
			} else {
				w.dev.UnpackMatrix(vals, m)
			}
			h.add(vals)
		}
	}
	return h.String()
}

package model

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/npu"
)

// Snapshot is one published version of the weights. It is read-only while it is
// published: instances of the same process share it without copying. Its methods
// may be called concurrently.
type Snapshot struct {
	version int64
	weights *Weights

	mu   sync.Mutex // held to read the values
	read *Weights   // the same values, for the device that reads them
	sum  string     // empty while it is not known
}

// NewSnapshot publishes w as a version. w must not change while anyone reads it.
func NewSnapshot(w *Weights, version int64) *Snapshot {
	return &Snapshot{version: version, weights: w, read: w}
}

// ReadWith makes dev read the values for Checksum and WriteSafetensors, so that
// they may be called while the weights' own device, of the same kind, is at other
// work. It is called before they are.
func (s *Snapshot) ReadWith(dev npu.Device) {
	read := *s.weights
	read.dev = dev
	s.read = &read
}

// Version is the number of the version.
func (s *Snapshot) Version() int64 { return s.version }

// Weights are the values, read-only.
func (s *Snapshot) Weights() *Weights { return s.weights }

// Checksum is Weights.Checksum, computed once.
func (s *Snapshot) Checksum() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum == "" {
		s.sum = s.read.Checksum()
	}
	return s.sum
}

// WriteSafetensors streams the weights as a safetensors file that carries its
// checksum, which ReadStream verifies. They are read once where w is a file, whose
// header is written again at the end: it begins with the stream.
func (s *Snapshot) WriteSafetensors(w io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, again := w.(io.WriterAt)
	if s.sum == "" && !again {
		s.sum = s.read.Checksum()
	}
	head, err := s.header(cmp.Or(s.sum, strings.Repeat("0", 16)))
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	sum := checkpoint.NewSum()
	add := sum.Add
	if s.sum != "" {
		add = func([]float32) {}
	}
	if err := s.read.writeData(w, add); err != nil || s.sum != "" {
		return err
	}
	s.sum = sum.String()
	if head, err = s.header(s.sum); err != nil {
		return err
	}
	if _, err := file.WriteAt(head, 0); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	return nil
}

// header is that of the file, whose length depends on the checksum's alone.
func (s *Snapshot) header(sum string) ([]byte, error) {
	sources := s.weights.Sources()
	sorted := make([]checkpoint.Source, len(sources))
	for i, at := range s.weights.byName() {
		sorted[i] = sources[at]
	}
	return checkpoint.Header(sorted, map[string]string{"format": "pt", "version": fmt.Sprint(s.version), checksumKey: sum})
}

// writeData writes all values in the order that Checksum has, and tells of them.
func (w *Weights) writeData(to io.Writer, tell func(vals []float32)) (err error) {
	behind := checkpoint.WriteBehind(to)
	defer func() {
		if closed := behind.Close(); err == nil && closed != nil {
			err = fmt.Errorf("write weights: %w", closed)
		}
	}()
	for _, i := range w.byName() {
		for _, m := range w.blocks(&w.Params[i]) {
			vals, err := behind.Room(m.Rows * max(m.Cols, 1))
			if err == nil {
				w.get(vals, m)
				tell(vals)
				err = behind.Write(vals)
			}
			if err != nil {
				return fmt.Errorf("write tensor %s: %w", w.Params[i].Name, err)
			}
		}
	}
	return w.dev.Sync()
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
	sum := checkpoint.NewSum()
	var vals []float32
	for _, i := range w.byName() {
		for _, m := range w.blocks(&w.Params[i]) {
			n := m.Rows * max(m.Cols, 1)
			vals = slices.Grow(vals[:0], n)[:n]
			w.get(vals, m)
			sum.Add(vals)
		}
	}
	return sum.String()
}

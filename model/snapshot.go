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
// checksum, which ReadStream verifies. They are read once where w is a
// checkpoint.Memory.
func (s *Snapshot) WriteSafetensors(w io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	memory, once := w.(*checkpoint.Memory)
	if s.sum == "" && !once {
		s.sum = s.read.Checksum()
	}
	head, err := s.header(cmp.Or(s.sum, strings.Repeat("0", 16)))
	if err == nil && once {
		err = memory.Begin(len(head) + int(4*s.weights.Config.NumParams()))
	}
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	sum, err := s.read.each(checkpoint.BlocksTo(w), s.sum == "")
	if err == nil {
		err = s.read.dev.Sync()
	}
	if err != nil || s.sum != "" {
		return err
	}
	s.sum = sum
	if head, err = s.header(sum); err == nil {
		memory.SetHeader(head)
	}
	return err
}

// header is that of the file, whose length depends on the checksum's alone.
func (s *Snapshot) header(sum string) ([]byte, error) {
	return checkpoint.Header(s.weights.Sources(), map[string]string{"format": "pt", "version": fmt.Sprint(s.version), checksumKey: sum})
}

// each writes all values, in the order that Checksum has, and returns their
// checksum where it is asked for.
func (w *Weights) each(to checkpoint.Blocks, summed bool) (checksum string, err error) {
	sum := checkpoint.NewSum()
	for _, p := range slices.SortedFunc(slices.Values(w.Params), func(a, b Param) int { return strings.Compare(a.Name, b.Name) }) {
		for _, m := range w.blocks(&p) {
			vals, err := to.Room(m.Rows * max(m.Cols, 1))
			if err == nil {
				w.get(vals, m)
				if summed {
					sum.Add(vals)
				}
				err = to.Took(vals)
			}
			if err != nil {
				return "", fmt.Errorf("write tensor %s: %w", p.Name, err)
			}
		}
	}
	return sum.String(), nil
}

// Checksum is the XXH64, in hexadecimal, of all values as little-endian
// float32, row-major, tensor after tensor in the order of their names: the same on
// every device, and the XXH64 of the data of a safetensors file of them.
func (w *Weights) Checksum() string {
	sum, _ := w.each(checkpoint.BlocksTo(io.Discard), true) // only writing fails
	return sum
}

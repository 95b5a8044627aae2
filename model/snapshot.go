package model

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
)

// Snapshot is one published version of the weights. It is read-only while published,
// and instances in the same process share it without copying. Its methods may be
// called concurrently.
type Snapshot struct {
	version int64
	weights *Weights

	mu   *sync.Mutex // guards read's device and sum; held while a file is written
	read *Weights    // the same values, bound to the device of ReadWith
	sum  string      // Weights.Sum; empty until computed
}

// NewSnapshot publishes w as a version. w must not change while the snapshot is in
// use.
func NewSnapshot(w *Weights, version int64) *Snapshot {
	return &Snapshot{version: version, weights: w, mu: new(sync.Mutex), read: w}
}

// NewSummed is NewSnapshot for weights whose Sum is known.
func NewSummed(w *Weights, version int64, sum string) *Snapshot {
	s := NewSnapshot(w, version)
	s.sum = sum
	return s
}

// ReadWith makes dev read the values for Sum, Checksum, WriteSafetensors and WritePacked,
// so that they can run while the weights' own device is busy. dev is a fork of that device; mu
// guards it if several snapshots use it. Call ReadWith before other goroutines use the snapshot.
func (s *Snapshot) ReadWith(dev npu.Device, mu *sync.Mutex) {
	s.read, s.mu = s.weights.Through(dev), mu
}

// Version returns the version number.
func (s *Snapshot) Version() int64 { return s.version }

// Weights returns the values. They are read-only.
func (s *Snapshot) Weights() *Weights { return s.weights }

// Sum returns Weights.Sum, computed once.
func (s *Snapshot) Sum() (sum string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum == "" {
		s.sum, err = s.read.Sum()
	}
	return s.sum, err
}

// Checksum returns Sum, or a text that is no checksum if the device fails.
func (s *Snapshot) Checksum() string { return textOf(s.Sum()) }

// WriteSafetensors streams the weights as a safetensors file with its checksum, which
// ReadStream verifies.
func (s *Snapshot) WriteSafetensors(w io.Writer) error {
	sum, err := s.Sum()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head, err := VersionFile{s.weights.Config, s.version, sum}.header(s.weights.Params)
	if memory, ok := w.(*checkpoint.MemoryFile); ok && err == nil {
		err = memory.Begin(len(head) + int(4*s.weights.Config.NumParams()))
	}
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	return s.read.writeAll(w)
}

// Layout returns the name of the layout that WritePacked writes.
func (s *Snapshot) Layout() string { return PanelLayout }

// WritePacked fills m with a file of the weights in panels, the layout of CPU
// devices. On such a device ReadStream loads it without repacking. The file is a
// safetensors file whose metadata name the layout. A matrix has the shape [panels,
// columns, npu.MatrixBlock].
func (s *Snapshot) WritePacked(m *checkpoint.MemoryFile) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sources := s.weights.Sources()
	size := 0 // bytes of the data
	for i := range sources {
		shape := s.weights.Params[i].Shape()
		sources[i].DType, sources[i].Shape = checkpoint.F32, shape.PanelShape()
		size += 4 * shape.Panels() * shape.PanelLen()
	}
	// The checksum is known only after the data. Until then, zeros of the same length reserve its place.
	texts := map[string]string{checksumKey: strings.Repeat("0", 16), layoutKey: PanelLayout,
		shapesKey: s.weights.Params.Shapes()}
	head, err := header(sources, s.version, texts, cacheLine)
	if err == nil {
		err = m.Begin(len(head) + size)
	}
	if err != nil {
		return err
	}
	if _, err := m.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	sums := s.read.Params.Sums()
	for _, p := range s.read.Params.ByName() {
		room, err := m.Room(p.Shape().Panels() * p.Shape().PanelLen())
		if err == nil {
			err = s.read.dev.ReadPanels(room, p, sums[p.Name])
		}
		if err == nil {
			err = m.Took(room)
		}
		if err != nil {
			return fmt.Errorf("write tensor %s: %w", p.Name, err)
		}
	}
	s.sum = sums.Total()
	texts[checksumKey] = s.sum
	head, err = header(sources, s.version, texts, cacheLine)
	if err == nil {
		m.SetHeader(head)
	}
	return err
}

// cacheLine is the alignment in bytes of the data in a packed file.
const cacheLine = 64

// header returns the header of a file with sources and a version, whose data starts at a multiple
// of align bytes. It adds the version and the format to texts, the metadata.
func header(sources []checkpoint.Source, version int64, texts map[string]string, align int) ([]byte, error) {
	texts["format"], texts["version"] = "pt", fmt.Sprint(version)
	return checkpoint.Header(sources, texts, align)
}

// writeAll writes all values, row-major, tensor by tensor in name order.
func (w *Weights) writeAll(to io.Writer) error {
	var vals []float32
	for _, p := range w.Params.ByName() {
		for _, m := range w.dev.Blocks(p) {
			var err error
			if vals, err = w.dev.Get(vals, m); err == nil {
				err = checkpoint.WriteFloats(to, vals)
			}
			if err != nil {
				return fmt.Errorf("write tensor %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// VersionFile is the file of a version of the weights whose values are not in memory.
type VersionFile struct {
	Config *Config
	Number int64
	Sum    string // as Weights.Sum returns it
}

// Write streams the file that Snapshot.WriteSafetensors writes, tensor by tensor. read returns the
// row-major values of a tensor, which stay unchanged until Write calls read again or returns.
func (v VersionFile) Write(w io.Writer, read func(p *tensor.Param) ([]float32, error)) error {
	params := v.Config.Params()
	head, err := v.header(params)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, p := range params.ByName() {
		values, err := read(p)
		if err == nil {
			err = checkpoint.WriteFloats(w, values)
		}
		if err != nil {
			return fmt.Errorf("write tensor %s: %w", p.Name, err)
		}
	}
	return nil
}

// Size returns the number of bytes that Write writes.
func (v VersionFile) Size() (int64, error) {
	head, err := v.header(v.Config.Params())
	return int64(len(head)) + 4*v.Config.NumParams(), err
}

// header returns the header of the file.
func (v VersionFile) header(params tensor.Params) ([]byte, error) {
	var sources []checkpoint.Source
	for i := range params {
		sources = append(sources, checkpoint.Source{Name: params[i].Name, Shape: params[i].Shape().RowShape()})
	}
	return header(sources, v.Number, map[string]string{checksumKey: v.Sum}, checkpoint.Align)
}

package model

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/panels"
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
// checksum, which ReadStream verifies.
func (s *Snapshot) WriteSafetensors(w io.Writer) error {
	sum := s.Checksum()
	s.mu.Lock()
	defer s.mu.Unlock()
	head, err := s.header(s.weights.Sources(), map[string]string{checksumKey: sum}, checkpoint.Align)
	if memory, ok := w.(*checkpoint.Memory); ok && err == nil {
		err = memory.Begin(len(head) + int(4*s.weights.Config.NumParams()))
	}
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	if err := s.read.each(w); err != nil {
		return err
	}
	return s.read.dev.Sync()
}

// Layout names the way in which WritePacked lays the weights out.
func (s *Snapshot) Layout() string { return panels.Layout }

// WritePacked makes m a file of the weights in panels, as CPU devices have them, for
// those that ReadStream them there: a safetensors file whose metadata name the
// layout, in which a matrix has the shape [panels, columns, npu.MatrixBlock].
func (s *Snapshot) WritePacked(m *checkpoint.Memory) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sources, size := s.weights.Sources(), 0
	for i := range sources {
		shape := s.weights.Params[i].shape()
		sources[i].Shape = shape.PanelShape()
		size += 4 * shape.Panels() * shape.PanelLen()
	}
	texts := map[string]string{checksumKey: strings.Repeat("0", 16), panels.LayoutKey: panels.Layout, shapesKey: s.weights.shapes()}
	head, err := s.header(sources, texts, cacheLine)
	if err == nil {
		err = m.Begin(len(head) + size)
	}
	if err != nil {
		return err
	}
	if _, err := m.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	sums := s.read.sums()
	for _, p := range s.read.byName() {
		room, err := m.Room(p.shape().Panels() * p.shape().PanelLen())
		if err == nil {
			s.read.readPanels(room, p, sums[p.Name])
			err = m.Took(room)
		}
		if err != nil {
			return fmt.Errorf("write tensor %s: %w", p.Name, err)
		}
	}
	if err := s.read.dev.Sync(); err != nil {
		return err
	}
	s.sum = sums.Total()
	texts[checksumKey] = s.sum
	if head, err = s.header(sources, texts, cacheLine); err == nil { // of the same length
		m.SetHeader(head)
	}
	return err
}

// cacheLine is the number of bytes of which the place of the data in a file of panels
// is a multiple.
const cacheLine = 64

// header is that of a file of sources, whose data begin at a multiple of align.
func (s *Snapshot) header(sources []checkpoint.Source, texts map[string]string, align int) ([]byte, error) {
	texts["format"], texts["version"] = "pt", fmt.Sprint(s.version)
	return checkpoint.Header(sources, texts, align)
}

// each writes all values, row-major, tensor after tensor in the order of their
// names.
func (w *Weights) each(to io.Writer) error {
	var vals []float32
	for _, p := range w.byName() {
		for _, m := range w.blocks(p) {
			vals = w.get(vals, m)
			if err := checkpoint.WriteFloats(to, vals); err != nil {
				return fmt.Errorf("write tensor %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

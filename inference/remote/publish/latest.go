// Package publish hands weights to inference servers as files, and compares what
// the servers then compute with the trainer.
package publish

import (
	"bytes"
	"context"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
)

// Latest is the newest weights as safetensors files in memory, which all easyrl
// servers are sent: those of this machine read one under its path, the others get
// its bytes. There is one in each layout that a server asked for. Each version is
// written once, over the one before, whose room it takes. Who still reads that one
// is told so when it is done. A file has no name: it is gone with the process.
type Latest struct {
	turn  chan struct{} // holds a token while nobody writes
	files map[string]*layoutFile
}

// layoutFile is weights in one layout.
type layoutFile struct {
	memory *checkpoint.Memory
	of     inference.Weights // what is in it; nil for nothing whole
}

// Packed are weights that can be written as they lie in memory.
type Packed interface {
	Layout() string
	WritePacked(m *checkpoint.Memory) error
}

// NewLatest has no weights yet.
func NewLatest() *Latest {
	l := &Latest{turn: make(chan struct{}, 1), files: map[string]*layoutFile{}}
	l.turn <- struct{}{}
	return l
}

// Put writes w in a layout, that of w or, where it is empty, rows, where it is not
// there yet, and returns the file: its path, where there is one, and its bytes. It
// may be called concurrently.
func (l *Latest) Put(ctx context.Context, w inference.Weights, layout string) (path string, data *bytes.Reader, err error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	f := l.files[layout]
	if f == nil {
		f = &layoutFile{memory: checkpoint.NewMemory()}
		l.files[layout] = f
	}
	if f.of == nil || f.of.Version() != w.Version() || f.of.Checksum() != w.Checksum() {
		f.of = nil
		write := func(m *checkpoint.Memory) error { return w.WriteSafetensors(m) }
		if p, ok := w.(Packed); ok && layout != "" {
			write = p.WritePacked
		}
		if err := f.memory.Fill(write); err != nil {
			return "", nil, fmt.Errorf("write weights: %w", err)
		}
		f.of = w
	}
	return f.memory.Path(), bytes.NewReader(f.memory.Bytes()), nil
}

// Package latest keeps the newest weights as files in memory, for all easyrl servers.
package latest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
)

// Files is the newest weights as safetensors files in memory, which all easyrl
// servers are sent: those of this machine read one under its path, the others get
// its bytes. There is one in each layout that a server asked for. Each version is
// written once, over the one before, whose room it takes. Who still reads that one
// is told so when it is done. A file has no name: it is gone with the process.
type Files struct {
	turn  chan struct{} // holds a token while nobody writes
	files map[string]*file
}

// file is weights in one layout.
type file struct {
	memory *checkpoint.Memory
	of     inference.Weights // what is in it; nil for nothing whole
}

// Packed are weights that can be written as they lie in memory.
type Packed interface {
	Layout() string
	WritePacked(m *checkpoint.Memory) error
}

// New has no weights yet.
func New() *Files {
	l := &Files{turn: make(chan struct{}, 1), files: map[string]*file{}}
	l.turn <- struct{}{}
	return l
}

// Put writes w in a layout, that of w or, where it is empty, rows, where it is not
// there yet, and returns the file: its path, where there is one, and its bytes. It
// may be called concurrently.
func (l *Files) Put(ctx context.Context, w inference.Weights, layout string) (path string, data *bytes.Reader, err error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	f := l.files[layout]
	if f == nil {
		f = &file{memory: checkpoint.NewMemory()}
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

// Package publish delivers weights to inference servers as files, and compares what the
// servers then compute with the trainer.
package publish

import (
	"bytes"
	"context"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
)

// Latest holds the newest weights as safetensors files in memory, one per layout in use.
// easyrl servers on this machine read a file by its path; others receive its bytes. Each
// version is written once, over the previous one. A server still reading the previous one
// detects the overwrite when it finishes. The files have no name and vanish with the
// process.
type Latest struct {
	turn  chan struct{} // holds a token unless a write runs
	files map[string]*layoutFile
}

// layoutFile holds weights in one layout.
type layoutFile struct {
	memory *checkpoint.MemoryFile
	of     inference.Weights // what it holds; nil if incomplete
}

// Packed is implemented by weights that can be written in their in-memory layout.
type Packed interface {
	Layout() string
	WritePacked(m *checkpoint.MemoryFile) error
}

// Sized is implemented by weights that are not in this process's memory. They are streamed to each
// server, as a file of Size bytes.
type Sized interface {
	Size() (int64, error)
}

// NewLatest returns a Latest without weights.
func NewLatest() *Latest {
	l := &Latest{turn: make(chan struct{}, 1), files: map[string]*layoutFile{}}
	l.turn <- struct{}{}
	return l
}

// Put writes w unless the file holds it already. layout is that of w, or empty for rows.
// It returns the file's path, if it has one, and its bytes. Put may be called
// concurrently.
func (l *Latest) Put(ctx context.Context, w inference.Weights, layout string) (
	path string, data *bytes.Reader, err error) {
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
		write := func(m *checkpoint.MemoryFile) error { return w.WriteSafetensors(m) }
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

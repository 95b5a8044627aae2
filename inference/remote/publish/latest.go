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

// Latest holds the newest weights as safetensors files in memory, one per layout in use. easyrl
// servers on this machine read a file by its path; others receive its bytes. Each version is written
// once, over the previous one: a server that still reads the previous one finds a wrong checksum at
// the end. The files have no name in the file system and vanish with the process.
type Latest struct {
	writing chan struct{} // semaphore of size 1, so that waiting can be canceled; full while Put runs; guards files
	files   map[string]*layoutFile
}

// layoutFile holds weights in one layout.
type layoutFile struct {
	memory  *checkpoint.MemoryFile
	weights inference.Weights // the weights in memory; nil if it is empty or incomplete
}

// Packed is implemented by weights that can be written in their in-memory layout.
type Packed interface {
	// Layout returns the name of the layout.
	Layout() string
	// WritePacked writes the weights in this layout as a safetensors file.
	WritePacked(m *checkpoint.MemoryFile) error
}

// Sized is implemented by weights that are not in this process's memory. They are streamed to each
// server instead of being kept as a file.
type Sized interface {
	// Size returns the number of bytes that WriteSafetensors writes.
	Size() (int64, error)
}

// NewLatest returns a Latest without weights.
func NewLatest() *Latest {
	return &Latest{writing: make(chan struct{}, 1), files: map[string]*layoutFile{}}
}

// Put writes w to the file of a layout unless the file holds it already. layout is that of w, or empty
// for rows. It returns the file's path, empty if it has none, and a reader of its bytes, which stay
// unchanged until the Put of other weights. Put may be called concurrently.
func (l *Latest) Put(ctx context.Context, w inference.Weights, layout string) (
	path string, data *bytes.Reader, err error) {
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	f := l.files[layout]
	if f == nil {
		f = &layoutFile{memory: checkpoint.NewMemory()}
		l.files[layout] = f
	}
	if f.weights == nil || f.weights.Version() != w.Version() || f.weights.Checksum() != w.Checksum() {
		f.weights = nil
		write := func(m *checkpoint.MemoryFile) error { return w.WriteSafetensors(m) }
		if p, ok := w.(Packed); ok && layout != "" {
			write = p.WritePacked
		}
		if err := f.memory.Fill(write); err != nil {
			return "", nil, fmt.Errorf("write weights: %w", err)
		}
		f.weights = w
	}
	return f.memory.Path(), bytes.NewReader(f.memory.Bytes()), nil
}

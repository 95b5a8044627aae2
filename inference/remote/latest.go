package remote

import (
	"bytes"
	"context"
	"fmt"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
)

// latest is the newest weights as a safetensors file in memory, which all easyrl
// servers are sent: those of this machine read it under its path, the others get
// its bytes. Each version is written once, over the one before, whose room it
// takes. Who still reads that one gets a mix, which has the wrong checksum. The
// file has no name: it is gone with the process.
type latest struct {
	turn   chan struct{} // holds a token while nobody writes
	memory *checkpoint.Memory
	of     inference.Weights // what is in it; nil for nothing whole
}

func newLatest() *latest {
	l := &latest{turn: make(chan struct{}, 1), memory: checkpoint.NewMemory()}
	l.turn <- struct{}{}
	return l
}

// put writes w where it is not there yet and returns its file: its path, where
// there is one, and its bytes.
func (l *latest) put(ctx context.Context, w inference.Weights) (path string, file *bytes.Reader, err error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	if l.of == nil || l.of.Version() != w.Version() || l.of.Checksum() != w.Checksum() {
		l.of = nil
		if err := l.memory.Fill(func(m *checkpoint.Memory) error { return w.WriteSafetensors(m) }); err != nil {
			return "", nil, fmt.Errorf("write weights: %w", err)
		}
		l.of = w
	}
	return l.memory.Path(), bytes.NewReader(l.memory.Bytes()), nil
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/easyrl/easyrl/inference"
)

// latest is the newest weights as a safetensors file in memory, which all easyrl
// servers are sent: those of this machine read it under its path, the others get
// its bytes. Each version is written once, over the one before, whose room it
// takes. Who still reads that one gets a mix, which has the wrong checksum. The
// file has no name: it is gone with the process.
type latest struct {
	turn chan struct{}     // holds a token while nobody writes
	file *os.File          // nil before the first
	path string            // for other processes; empty where they cannot open it
	of   inference.Weights // what is in it; nil for nothing whole
	size int64
}

func newLatest() *latest {
	l := &latest{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// put writes w where it is not there yet and returns its file: its path, where
// there is one, and its bytes.
func (l *latest) put(ctx context.Context, w inference.Weights) (path string, bytes *io.SectionReader, err error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	if l.of == nil || l.of.Version() != w.Version() || l.of.Checksum() != w.Checksum() {
		l.of = nil
		if err := l.write(w); err != nil {
			return "", nil, fmt.Errorf("write weights: %w", err)
		}
		l.of = w
	}
	return l.path, io.NewSectionReader(l.file, 0, l.size), nil
}

func (l *latest) write(w inference.Weights) (err error) {
	if l.file == nil {
		if l.file, l.path, err = nameless(); err != nil {
			return err
		}
	}
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := w.WriteSafetensors(l.file); err != nil {
		return err
	}
	if l.size, err = l.file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	return l.file.Truncate(l.size)
}

// nameless is a file that is gone with the process: in memory where the system has
// that, and in its folder for temporary files elsewhere. Other processes of the
// same user open it by the path, where there is one.
func nameless() (f *os.File, path string, err error) {
	if f, path, err = inMemory(); err == nil {
		return f, path, nil
	}
	f, tempErr := os.CreateTemp("", "easyrl-weights-")
	if tempErr != nil {
		return nil, "", errors.Join(err, tempErr)
	}
	_ = os.Remove(f.Name()) // where that is refused, the system's clean-up does it
	return f, "", nil
}

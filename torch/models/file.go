package models

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
)

// file is a published version as a file: of an adapter, or of the weights of a decoder that package model
// does not know.
type file struct {
	path     string
	version  int64
	size     int64  // bytes
	checksum string // of the contents, in hexadecimal
}

// openFile reads a safetensors file once to compute its checksum.
func openFile(path string, version int64) (*file, error) {
	f, err := filetype.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	h := xxh3.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &file{path: path, version: version, size: size, checksum: fmt.Sprintf("%016x", h.Sum64())}, nil
}

// Version returns the version number.
func (f *file) Version() int64 { return f.version }

// Checksum returns a hash of the file.
func (f *file) Checksum() string { return f.checksum }

// WriteSafetensors copies the file to w. It fails if the file's size has changed.
func (f *file) WriteSafetensors(w io.Writer) error {
	in, err := filetype.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	if memory, ok := w.(*checkpoint.MemoryFile); ok {
		if err := memory.Begin(int(f.size)); err != nil {
			return err
		}
	}
	n, err := io.Copy(w, in)
	if err == nil && n != f.size {
		err = fmt.Errorf("%s has %d bytes, expected %d", f.path, n, f.size)
	}
	return err
}

// Checksum returns a hash of the safetensors files in a model folder, in the order of their names.
func Checksum(dir string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return "", err
	}
	h := xxh3.New()
	for _, path := range paths {
		f, err := openFile(path, 0)
		if err != nil {
			return "", err
		}
		_, _ = h.WriteString(f.checksum) // never fails
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

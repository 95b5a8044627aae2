package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/filetype"
)

// keepMapping is how long Files keeps the mapping of a file after reading it.
const keepMapping = time.Minute

// Files reads safetensors files. A file in memory (MemoryFile of this or another process) is
// read in place: Read fails if the file is rewritten meanwhile, and the mapping is kept for
// the next version of the file, until another file is read or keepMapping passes. Other files
// are read as streams. The zero Files is ready to use. Its methods are safe for concurrent
// use; it reads one file at a time.
type Files struct {
	mu   sync.Mutex // guards all fields; held while a file is read
	file *os.File   // file of the kept mapping; nil if none
	kept mapping
	idle *time.Timer // drops the mapping; set whenever file is, except during a read
}

// Read passes the file at path to use as a Stream that is valid until use
// returns. Read's error includes path.
func (k *Files) Read(path string, use func(s *Stream) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.read(path, use); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (k *Files) read(path string, use func(s *Stream) error) error {
	if info, err := os.Stat(path); err == nil && k.holds(info) {
		return k.readKept(info.Size(), use)
	}
	_ = k.drop() // a file that was only read loses nothing
	f, err := filetype.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if unshrinkable(f) {
		if k.kept, err = mapOpen(f); err != nil {
			return errors.Join(err, f.Close())
		}
		k.file = f
		return k.readKept(int64(len(k.kept.data)), use)
	}
	defer f.Close() //nolint:errcheck // only read
	s, err := NewStream(f, info.Size())
	if err != nil {
		return err
	}
	return use(s)
}

// holds reports whether the kept mapping is of this file and covers it to its end.
func (k *Files) holds(info os.FileInfo) bool {
	if k.file == nil || info.Size() > int64(len(k.kept.data)) {
		return false
	}
	kept, err := k.file.Stat()
	return err == nil && os.SameFile(kept, info)
}

// readKept reads the first size bytes of the kept mapping.
func (k *Files) readKept(size int64, use func(s *Stream) error) error {
	if k.idle != nil {
		k.idle.Stop()
	}
	defer func() { k.idle = time.AfterFunc(keepMapping, func() { _ = k.Close() }) }()
	m := &mapped{data: k.kept.data[:size]}
	var head bytes.Buffer // copy of the header, for unchanged
	s, err := NewStream(io.TeeReader(m, &head), size)
	if err != nil {
		return err
	}
	s.r = m // without the tee: Blocks recognizes a *mapped and reads it in place
	if err := use(s); err != nil {
		return err
	}
	return unchanged(k.file, head.Bytes())
}

// Close releases the kept mapping. Files remains usable.
func (k *Files) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.drop()
}

// drop releases the kept mapping, if any. k.mu is locked.
func (k *Files) drop() error {
	if k.file == nil {
		return nil
	}
	k.idle.Stop()
	err := errors.Join(k.kept.unmap(), k.file.Close())
	k.file = nil
	k.kept = mapping{}
	return err
}

// mapped reads a mapped file: Read by copying, next in place.
type mapped struct {
	data []byte
	at   int // offset of the next read
}

// Read implements io.Reader.
func (m *mapped) Read(p []byte) (int, error) {
	if m.at == len(m.data) {
		return 0, io.EOF
	}
	n := copy(p, m.data[m.at:])
	m.at += n
	return n, nil
}

// next returns the next n bytes without copying them. data must have as many.
func (m *mapped) next(n int) []byte {
	b := m.data[m.at : m.at+n]
	m.at += n
	return b
}

// unchanged returns an error if f does not begin with head, the header that was read before
// the data. A writer clears the length of the header before it changes data. A new header with
// the same bytes goes unnoticed, so writers put a version into the metadata.
func unchanged(f *os.File, head []byte) error {
	current := make([]byte, len(head))
	if _, err := f.ReadAt(current, 0); err != nil {
		return err
	}
	if !bytes.Equal(current, head) {
		return errors.New("was rewritten while being read")
	}
	return nil
}

// inPlace is Blocks without copies. It reads nothing and returns done false if the data is
// misaligned, not all F32, or the machine is big-endian. The mapping ends with the last tensor:
// NewStream has checked that the tensors cover its size exactly.
func (s *Stream) inPlace(m *mapped, size func(t Tensor) int, use func(t Tensor, first int, vals []float32) error) (
	done bool, err error) {
	needsConversion := func(e entry) bool { return e.dtype != F32 }
	_, aligned := values(m.data[m.at:])
	if !aligned || bigEndian() || slices.ContainsFunc(s.header.entries, needsConversion) {
		return false, nil
	}
	for _, t := range s.Tensors() {
		for first, left := 0, t.Len(); left > 0; {
			n := min(left, max(size(t), 1))
			raw := m.next(4 * n)
			vals, _ := values(raw) // aligned, like the start of the data
			if err := use(t, first, vals); err != nil {
				return true, err
			}
			first, left = first+n, left-n
		}
	}
	return true, nil
}

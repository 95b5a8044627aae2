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

// keepMap is how long an unread mapping is kept.
const keepMap = time.Minute

// Files reads safetensors files. It reads a file in another process's memory in
// place and fails if the file is rewritten meanwhile. It keeps the mapping for
// the file's next version until another file is read or a minute passes. The zero
// Files is ready to use. Its methods are safe for concurrent use; it reads one
// file at a time.
type Files struct {
	mu   sync.Mutex
	file *os.File // of the kept mapping; nil if none
	kept mapping
	idle *time.Timer
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
	_ = k.drop() // only read
	f, err := filetype.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if steady(f) {
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

// holds reports whether the kept mapping covers the whole file.
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
	defer func() { k.idle = time.AfterFunc(keepMap, func() { _ = k.Close() }) }()
	m := &mapped{data: k.kept.data[:size]}
	var head bytes.Buffer // the header as read
	s, err := NewStream(io.TeeReader(m, &head), size)
	if err != nil {
		return err
	}
	s.r = m
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

func (k *Files) drop() (err error) {
	if k.file == nil {
		return nil
	}
	k.idle.Stop()
	err = errors.Join(k.kept.unmap(), k.file.Close())
	k.file, k.kept = nil, mapping{}
	return err
}

// mapped reads a file in place.
type mapped struct {
	data []byte
	at   int
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

// next returns the next n bytes.
func (m *mapped) next(n int) []byte {
	b := m.data[m.at : m.at+n]
	m.at += n
	return b
}

// unchanged returns an error if f no longer begins with the header that was read.
// A writer clears the header first.
func unchanged(f *os.File, head []byte) error {
	now := make([]byte, len(head))
	if _, err := f.ReadAt(now, 0); err != nil {
		return err
	}
	if !bytes.Equal(now, head) {
		return errors.New("was rewritten while being read")
	}
	return nil
}

// inPlace is Blocks without copies. It reports false if the data is misaligned,
// not all F32, or the machine is big-endian.
func (s *Stream) inPlace(m *mapped, most func(t Tensor) int, use func(t Tensor, first int, vals []float32) error) (
	done bool, err error) {
	short := func(e entry) bool { return e.dtype != F32 }
	if _, ok := values(m.data[m.at:]); !ok || bigEndian() || slices.ContainsFunc(s.header.entries, short) {
		return false, nil
	}
	for _, t := range s.Tensors() {
		for first, left := 0, t.Len(); left > 0; {
			n := min(left, max(most(t), 1))
			raw := m.next(4 * n)
			vals, _ := values(raw)
			if err := use(t, first, vals); err != nil {
				return true, err
			}
			first, left = first+n, left-n
		}
	}
	return true, nil
}

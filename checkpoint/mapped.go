package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadFile reads a safetensors file as a Stream, in use. One that another process
// has in memory is read where it is, and refused where it was begun again
// meanwhile.
func ReadFile(path string, use func(s *Stream) error) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %s, expected a file", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	var r io.Reader = f
	if steady(f) {
		m, err := mapFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer m.unmap() //nolint:errcheck // only read
		r = &mapped{data: m.data}
	}
	s, err := NewStream(r, info.Size())
	if err == nil {
		err = use(s)
	}
	if m, ok := r.(*mapped); ok && err == nil {
		err = m.unchanged(f, s.header.size)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// mapped is a file that is read where it lies.
type mapped struct {
	data []byte
	at   int
	head []byte // as it was read
}

// Read is io.Reader's. It reads the header, and what comes after the data.
func (m *mapped) Read(p []byte) (int, error) {
	if m.at == len(m.data) {
		return 0, io.EOF
	}
	n := copy(p, m.data[m.at:])
	m.head = append(m.head, p[:n]...)
	m.at += n
	return n, nil
}

// next is the next n bytes.
func (m *mapped) next(n int) []byte {
	b := m.data[m.at : m.at+n]
	m.at += n
	return b
}

// unchanged is an error where f does not begin with the header of size bytes that
// was read: whoever writes it again begins with that.
func (m *mapped) unchanged(f *os.File, size int) error {
	now := make([]byte, size)
	if _, err := f.ReadAt(now, 0); err != nil {
		return err
	}
	if !bytes.Equal(now, m.head[:size]) {
		return errors.New("was written again while it was read")
	}
	return nil
}

// inPlace is Blocks for a file that lies in memory as numbers do, if it does.
func (s *Stream) inPlace(m *mapped, most func(t Tensor) int, use func(t Tensor, first int, vals []float32) error) (done bool, err error) {
	for _, e := range s.header.entries {
		if e.dtype != F32 || bigEndian() {
			return false, nil
		}
	}
	if _, ok := values(m.data[m.at:]); !ok {
		return false, nil
	}
	for _, t := range s.Tensors() {
		for first, left := 0, t.Len(); left > 0; {
			n := min(left, max(most(t), 1))
			raw := m.next(4 * n)
			s.sum.addBytes(raw)
			vals, _ := values(raw)
			if err := use(t, first, vals); err != nil {
				return true, err
			}
			first, left = first+n, left-n
		}
	}
	return true, nil
}

package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"github.com/easyrl/easyrl/internal/bytesize"
)

// A MemoryFile is a safetensors file in this process's memory; it disappears with the
// process. Fill replaces its content. Its callback should call Begin with the new size
// first: then writes go to their final place. Without Begin, Fill buffers all writes. A
// MemoryFile is for one goroutine at a time; the slices returned by Bytes may be shared
// until the next Begin.
type MemoryFile struct {
	room    []byte   // memory of the file, possibly larger than the file
	size    int      // size of the file in bytes
	at      int      // offset of the next write
	begun   bool     // Begin has been called during this Fill
	pending []byte   // bytes written before Begin
	path    string   // result of Path
	file    *os.File // backs room; nil if room is on the heap
}

// NewMemory returns an empty file. On systems with files in memory (Linux), other
// processes of the same user can open it under its Path.
func NewMemory() *MemoryFile { return &MemoryFile{} }

// Path returns the file's path for other processes, or "" if they cannot open it.
// Begin sets it, and changes it if the file shrinks or grows a lot.
func (m *MemoryFile) Path() string { return m.path }

// Bytes returns the content of the file. The next Begin invalidates it.
func (m *MemoryFile) Bytes() []byte { return m.room[:m.size:m.size] }

// Fill replaces the file's content with the output of write. It returns
// io.ErrUnexpectedEOF if write writes fewer bytes than it passed to Begin.
func (m *MemoryFile) Fill(write func(m *MemoryFile) error) error {
	m.begun, m.pending = false, nil
	err := write(m)
	if err == nil && !m.begun {
		all := m.pending
		if err = m.Begin(len(all)); err == nil {
			_, err = m.Write(all)
		}
	}
	if err == nil && m.at < m.size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Begin sets the size of the new content in bytes, before the first byte is written. It
// clears the header's length, so that readers find no valid file until the header is written.
func (m *MemoryFile) Begin(size int) error {
	if err := growMemory(m, size); err != nil {
		return fmt.Errorf("%s in memory: %w", bytesize.Text(int64(size)), err)
	}
	m.size, m.at, m.begun = size, 0, true
	clear(m.room[:min(size, 8)])
	return nil
}

// Write implements io.Writer. It returns io.ErrShortWrite at the end of the file.
func (m *MemoryFile) Write(p []byte) (int, error) {
	if !m.begun {
		m.pending = append(m.pending, p...)
		return len(p), nil
	}
	n := copy(m.room[m.at:m.size], p)
	m.at += n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// Room returns the memory of the file's next n values; the caller fills it with values in
// native byte order and passes it to Took. Room fails if the values exceed the file's size or
// are not aligned.
func (m *MemoryFile) Room(n int) ([]float32, error) {
	if 4*n > m.size-m.at {
		return nil, io.ErrShortWrite
	}
	vals, ok := values(m.room[m.at : m.at+4*n])
	if !ok {
		return nil, errors.New("values are not aligned to 4 bytes")
	}
	return vals, nil
}

// Took completes Room: vals, which Room returned, become a part of the file. Its error is
// always nil.
func (m *MemoryFile) Took(vals []float32) error {
	fromLittle(vals) // also converts to little-endian: both conversions reverse the bytes
	m.at += 4 * len(vals)
	return nil
}

// SetHeader replaces the header with one of the same length.
func (m *MemoryFile) SetHeader(head []byte) { copy(m.room, head) }

// values returns the memory of b as float32 values, without the bytes of an incomplete last
// one, or false if b is not aligned to 4 bytes.
func values(b []byte) ([]float32, bool) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(p), len(b)/4), true
}

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
// process. After Begin, writes go to their final place; without Begin, they are
// buffered first. A MemoryFile is for one goroutine at a time; the slices returned by
// Bytes may be shared.
type MemoryFile struct {
	room    []byte // all memory
	size    int    // of the file
	at      int    // offset of the next write
	begun   bool
	pending []byte // written before Begin
	path    string
	file    *os.File // backs room; nil if room is on the heap
}

// NewMemory returns an empty file. On systems with files in memory (Linux), other
// processes of the same user can open it under its Path.
func NewMemory() *MemoryFile { return &MemoryFile{} }

// Path returns the file's path for other processes, or "" if they cannot open it.
// It changes when Begin is called with a much larger size.
func (m *MemoryFile) Path() string { return m.path }

// Bytes returns the content of the file. The next Begin invalidates it.
func (m *MemoryFile) Bytes() []byte { return m.room[:m.size:m.size] }

// Fill replaces the file's content with what write writes.
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

// Begin sets the size of the new content, before the first byte is written. Until
// the header is written, readers find no valid file.
func (m *MemoryFile) Begin(size int) error {
	if err := growMemory(m, size); err != nil {
		return fmt.Errorf("%s in memory: %w", bytesize.Text(int64(size)), err)
	}
	m.size, m.at, m.begun = size, 0, true
	clear(m.room[:min(size, 8)])
	return nil
}

// Write implements io.Writer.
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

// Room returns memory for the file's next n values; the caller fills it and
// passes it to Took. It fails if the values exceed the file's size.
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

// Took appends the values that the caller wrote into Room's memory.
func (m *MemoryFile) Took(vals []float32) error {
	fromLittle(vals) // reversing bytes works both ways
	m.at += 4 * len(vals)
	return nil
}

// SetHeader replaces the header with one of the same length.
func (m *MemoryFile) SetHeader(head []byte) { copy(m.room, head) }

// values reinterprets b as float32; false if misaligned.
func values(b []byte) ([]float32, bool) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(p), len(b)/4), true
}

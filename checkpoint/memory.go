package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"
)

// A Memory is a safetensors file in this process's memory, which is gone with it.
// What is written after Begin is written where it lies; without it, it is collected
// first. A Memory is used by one goroutine, but for what Bytes gave.
type Memory struct {
	room    []byte // all there is
	size    int    // of the file
	at      int    // the next byte to write
	begun   bool
	pending []byte // written before Begin
	path    string
	file    *os.File // that room is a map of; nil where it is of none
}

// NewMemory is an empty file. Where the system has files in memory (Linux),
// processes of the same user may open it under its path.
func NewMemory() *Memory { return &Memory{} }

// Path is the file's name for other processes, empty where they cannot open it. It
// changes where the file is begun again with a much larger size.
func (m *Memory) Path() string { return m.path }

// Bytes are the file's. They change when it is begun again.
func (m *Memory) Bytes() []byte { return m.room[:m.size:m.size] }

// Fill starts the file again and makes it what write writes.
func (m *Memory) Fill(write func(m *Memory) error) error {
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

// Begin says how many bytes the file will have, before the first is written. Until
// the header is, who opens the file finds none.
func (m *Memory) Begin(size int) error {
	if err := growMemory(m, size); err != nil {
		return fmt.Errorf("%d bytes in memory: %w", size, err)
	}
	m.size, m.at, m.begun = size, 0, true
	clear(m.room[:min(size, 8)])
	return nil
}

// Write is io.Writer's.
func (m *Memory) Write(p []byte) (int, error) {
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

// Room lends the place of the file's next n values, to be filled and given to Took.
// It is an error where the file has no room for them.
func (m *Memory) Room(n int) ([]float32, error) {
	if 4*n > m.size-m.at {
		return nil, io.ErrShortWrite
	}
	vals, ok := values(m.room[m.at : m.at+4*n])
	if !ok {
		return nil, errors.New("values in memory: expected a header of a multiple of 4 bytes")
	}
	return vals, nil
}

// Took takes the values that fill what Room lent.
func (m *Memory) Took(vals []float32) error {
	fromLittle(vals) // either way it turns them
	m.at += 4 * len(vals)
	return nil
}

// SetHeader replaces the header by one of the same length.
func (m *Memory) SetHeader(head []byte) { copy(m.room, head) }

// values are those of which b is the memory, where it may hold some.
func values(b []byte) ([]float32, bool) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(p), len(b)/4), true
}

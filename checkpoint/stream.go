package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// A Stream reads a safetensors file that comes in one piece after another, such
// as the body of a request, tensor by tensor in the order of their data. A
// goroutine reads ahead while what has come is used. It is used by one goroutine.
type Stream struct {
	header *header
	next   int  // of the header's entries
	left   int  // bytes of the current tensor
	now    part // what is read from
	rest   []byte
	sum    *xxhash.Digest // of the data

	full    chan part
	free    chan []byte
	quit    chan struct{}
	reading sync.WaitGroup
}

// part is some of the data, and the error that ended it.
type part struct {
	data []byte
	err  error
}

// The pieces in which a stream is read ahead.
const (
	partSize = 1 << 20 // bytes
	numParts = 4
)

// NewStream reads the header of a stream of size bytes; -1 is a size that is not
// known. The memory it takes is in proportion to what came. The caller closes the
// Stream before it uses r again.
func NewStream(r io.Reader, size int64) (*Stream, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return nil, fmt.Errorf("read safetensors: %w", err)
	}
	s := &Stream{header: h, sum: xxhash.New(), full: make(chan part, numParts), free: make(chan []byte, numParts), quit: make(chan struct{})}
	for range numParts {
		s.free <- nil
	}
	data := 0
	if n := len(h.entries); n > 0 {
		data = h.entries[n-1].end
	}
	s.reading.Go(func() { s.readAhead(r, data) })
	return s, nil
}

// readHeader reads and checks what stands before the data.
func readHeader(r io.Reader, size int64) (*header, error) {
	var length [8]byte
	if n, err := io.ReadFull(r, length[:]); err != nil {
		return nil, fmt.Errorf("%d bytes, expected at least the 8 of the header's length: %w", n, noEOF(err))
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, expected at most %d", n, maxHeader)
	}
	if size >= 0 && int64(n) > size-8 {
		return nil, fmt.Errorf("header of %d bytes, but the file has %d: truncated", n, size)
	}
	var text bytes.Buffer
	if got, err := io.CopyN(&text, r, int64(n)); err != nil {
		return nil, fmt.Errorf("%d bytes of the header, expected %d: %w", got, n, noEOF(err))
	}
	h, err := parseText(text.Bytes())
	if err != nil {
		return nil, err
	}
	data := 0
	for _, e := range h.entries {
		data = max(data, e.end)
	}
	if size >= 0 {
		if size-int64(h.size) > math.MaxInt {
			return nil, fmt.Errorf("%d bytes, expected at most %d", size, math.MaxInt)
		}
		data = int(size) - h.size
	}
	return h, h.place(data)
}

// readAhead reads size bytes of data and then the end of r.
func (s *Stream) readAhead(r io.Reader, size int) {
	defer close(s.full)
	send := func(p part) bool {
		select {
		case s.full <- p:
			return p.err == nil
		case <-s.quit:
			return false
		}
	}
	for at := 0; at < size; {
		var buf []byte
		select {
		case buf = <-s.free:
		case <-s.quit:
			return
		}
		if buf == nil {
			buf = make([]byte, min(partSize, size-at))
		}
		n, err := io.ReadFull(r, buf[:min(cap(buf), size-at)])
		at += n
		_, _ = s.sum.Write(buf[:n]) // never fails
		if err != nil {
			err = fmt.Errorf("%d bytes of data, expected %d: %w", at, size, noEOF(err))
		}
		if !send(part{buf[:n], err}) {
			return
		}
	}
	var more [1]byte
	_, err := io.ReadFull(r, more[:])
	if err == nil {
		err = fmt.Errorf("more than %d bytes of data, expected the tensors' only", size)
	}
	send(part{nil, err})
}

// Tensors are all tensors of the header, in the order of their data. They cannot
// be read.
func (s *Stream) Tensors() []Tensor {
	all := make([]Tensor, len(s.header.entries))
	for i, e := range s.header.entries {
		all[i] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape}
	}
	return all
}

// Next goes to the next tensor, of which Read then reads all elements. After the
// last one it returns io.EOF where r has ended with its data.
func (s *Stream) Next() (Tensor, error) {
	if s.left > 0 {
		return Tensor{}, fmt.Errorf("read safetensors: tensor %q has %d bytes left, expected that all are read", s.header.entries[s.next-1].name, s.left)
	}
	if s.next == len(s.header.entries) {
		return Tensor{}, s.end()
	}
	e := s.header.entries[s.next]
	s.next++
	s.left = e.end - e.begin
	return Tensor{Name: e.name, DType: e.dtype, Shape: e.shape}, nil
}

func (s *Stream) end() error {
	for s.now.err == nil {
		_ = s.advance() // now.err says the same
	}
	if errors.Is(s.now.err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("read safetensors: %w", s.now.err)
}

// Read reads the next len(dst) elements of the current tensor. BF16 and F16 are
// converted, exactly.
func (s *Stream) Read(dst []float32) error {
	if s.next == 0 {
		return errors.New("read safetensors: no tensor yet, expected Next first")
	}
	e := &s.header.entries[s.next-1]
	convert, size := e.dtype.converter(), e.dtype.bits()/8
	if convert == nil {
		return fmt.Errorf("read tensor %q: dtype %s, expected F32, BF16 or F16", e.name, e.dtype)
	}
	if len(dst)*size > s.left {
		return fmt.Errorf("read tensor %q: %d elements, expected at most the %d left", e.name, len(dst), s.left/size)
	}
	s.left -= len(dst) * size
	for len(dst) > 0 {
		if n := min(len(dst), len(s.rest)/size); n > 0 {
			convert(dst[:n], s.rest)
			s.rest, dst = s.rest[n*size:], dst[n:]
			continue
		}
		cut := slices.Clone(s.rest) // of an element at the end of a part
		if err := s.advance(); err != nil {
			return fmt.Errorf("read tensor %q: %w", e.name, err)
		}
		if len(cut) > 0 {
			n := min(size-len(cut), len(s.rest))
			cut, s.rest = append(cut, s.rest[:n]...), s.rest[n:]
			if len(cut) < size {
				return fmt.Errorf("read tensor %q: %w", e.name, io.ErrUnexpectedEOF)
			}
			convert(dst[:1], cut)
			dst = dst[1:]
		}
	}
	return nil
}

// advance goes to the next part.
func (s *Stream) advance() error {
	if s.now.err != nil {
		return noEOF(s.now.err)
	}
	if s.now.data != nil {
		s.free <- s.now.data[:cap(s.now.data)]
	}
	s.now = <-s.full
	s.rest = s.now.data
	if len(s.rest) > 0 {
		return nil // what has come before an error is good
	}
	return noEOF(s.now.err)
}

// Sum is the XXH64 of the data, once Next has returned io.EOF.
func (s *Stream) Sum() uint64 { return s.sum.Sum64() }

// Close ends the reading ahead. It waits for a read that goes on.
func (s *Stream) Close() {
	close(s.quit)
	s.reading.Wait()
}

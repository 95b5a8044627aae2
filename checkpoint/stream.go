package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// A Stream reads a safetensors file sequentially, such as the body of a request.
// It is for one goroutine.
type Stream struct {
	r      io.Reader // positioned at the data
	header *header
	short  []byte // scratch space for BF16 and F16 elements
}

// NewStream reads the header of a stream of size bytes; -1 means unknown. It allocates memory
// in proportion to the bytes received, whatever the header claims.
func NewStream(r io.Reader, size int64) (*Stream, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return nil, fmt.Errorf("read safetensors: %w", err)
	}
	return &Stream{r: r, header: h}, nil
}

// Tensors returns all tensors of the header in data order. They describe the
// data; their read methods fail.
func (s *Stream) Tensors() []Tensor {
	all := make([]Tensor, len(s.header.entries))
	for i, e := range s.header.entries {
		all[i] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape}
	}
	return all
}

// Tensor returns the named tensor. Its read methods fail.
func (s *Stream) Tensor(name string) (Tensor, bool) {
	all := s.Tensors()
	i := slices.IndexFunc(all, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return all[i], true
}

// Metadata returns the stream's __metadata__ entries.
func (s *Stream) Metadata() map[string]string { return s.header.metadata }

// numBlocks is the number of buffers of Blocks: one being read, one in use, and one waiting.
const numBlocks = 3

// block is a run of elements of a tensor, or the error that ended a stream.
type block struct {
	tensor Tensor
	first  int       // index of the first element in the tensor
	vals   []float32 // elements; a buffer that its consumer returns
	err    error
}

// Blocks reads all elements, tensor by tensor in data order, up to the end of the stream.
// It passes them to use in blocks of size(tensor) elements, fewer at a tensor's
// end; first is the index of a block's first element in t. It converts BF16 and F16 exactly.
// vals is read-only and valid until use returns. A separate goroutine reads ahead while use
// works; it ends before Blocks returns. Blocks stops at the first error of the stream or of
// use. Blocks passed to use before an error are valid.
func (s *Stream) Blocks(size func(t Tensor) int, use func(t Tensor, first int, vals []float32) error) error {
	if m, ok := s.r.(*mapped); ok {
		if done, err := s.inPlace(m, size, use); done {
			return err
		}
	}
	full := make(chan block)                // blocks that were read
	free := make(chan []float32, numBlocks) // buffers; has room for all, so returning one never blocks
	quit := make(chan struct{})             // closed when the consumer stops
	for range numBlocks {
		free <- nil
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(full)
		s.read(size, func() ([]float32, bool) {
			select {
			case vals := <-free:
				return vals, true
			case <-quit:
				return nil, false
			}
		}, func(b block) bool {
			select {
			case full <- b:
				return b.err == nil
			case <-quit:
				return false
			}
		})
	})
	defer reading.Wait() // runs after close(quit)
	defer close(quit)
	for b := range full {
		if b.err != nil {
			return b.err
		}
		if err := use(b.tensor, b.first, b.vals); err != nil {
			return err
		}
		free <- b.vals
	}
	return nil
}

// read sends all blocks, in buffers obtained from take. It stops after it sent an error, or
// when take or send returns false: the consumer has stopped.
func (s *Stream) read(size func(t Tensor) int, take func() ([]float32, bool), send func(b block) bool) {
	for i, t := range s.Tensors() {
		e := &s.header.entries[i]
		if t.DType.converter() == nil {
			send(block{err: fmt.Errorf("read tensor %q: dtype %s, expected F32, BF16 or F16", t.Name, t.DType)})
			return
		}
		for first, left := 0, t.Len(); left > 0; {
			vals, ok := take()
			if !ok {
				return
			}
			n := min(left, max(size(t), 1))
			vals = slices.Grow(vals[:0], n)[:n]
			got, err := s.fill(e.dtype, vals)
			if err != nil {
				total := e.begin + first*e.dtype.bits()/8 + got
				err = fmt.Errorf("read tensor %q: %d bytes of data, expected %d: %w", t.Name, total, s.dataSize(),
					noEOF(err))
			}
			if !send(block{t, first, vals, err}) {
				return
			}
			first, left = first+n, left-n
		}
	}
	var extra [1]byte
	_, err := io.ReadFull(s.r, extra[:])
	if err == nil {
		err = fmt.Errorf("more than the tensors' %d bytes of data", s.dataSize())
	}
	if !errors.Is(err, io.EOF) {
		send(block{err: fmt.Errorf("read safetensors: %w", err)})
	}
}

// dataSize returns the length of the data in bytes.
func (s *Stream) dataSize() int {
	if n := len(s.header.entries); n > 0 {
		return s.header.entries[n-1].end
	}
	return 0
}

// fill reads len(vals) elements of type d into vals and converts them. It returns the
// number of bytes read.
func (s *Stream) fill(d DType, vals []float32) (int, error) {
	if d == F32 {
		n, err := io.ReadFull(s.r, memory(vals))
		fromLittle(vals)
		return n, err
	}
	s.short = slices.Grow(s.short[:0], 2*len(vals))[:2*len(vals)]
	n, err := io.ReadFull(s.r, s.short)
	d.converter()(vals, s.short)
	return n, err
}

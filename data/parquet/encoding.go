package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Encodings of values, numbered as in Parquet.
const (
	encodingPlain           = 0
	encodingPlainDictionary = 2
	encodingRLE             = 3
	encodingDelta           = 5
	encodingDeltaLength     = 6
	encodingDeltaBytes      = 7
	encodingDictionary      = 8
	encodingSplit           = 9 // BYTE_STREAM_SPLIT
)

var errValues = errors.New("page has fewer values than it claims")

// values yields the values of a page one by one. No value is larger than the
// page.
type values interface {
	next() (value, error)
}

// hybrid decodes small integers stored as runs and bit-packed groups
// (RLE/bit-packing hybrid).
type hybrid struct {
	b      []byte // bytes from the current groups, or after the current run
	width  int    // bits of an integer, at most 32
	left   uint64 // number of values left in the current run or groups
	packed bool   // the current values are bit-packed groups, not a run
	run    uint32 // value of the current run
	bit    int    // offset in bits of the next value in b, for groups
}

func (h *hybrid) next() (uint32, error) {
	for h.left == 0 {
		if err := h.header(); err != nil {
			return 0, err
		}
	}
	h.left--
	if !h.packed {
		return h.run, nil
	}
	x, ok := bitsAt(h.b, h.bit, h.width)
	if !ok {
		return 0, errValues
	}
	h.bit += h.width
	if h.left == 0 {
		h.b = h.b[min(len(h.b), (h.bit+7)/8):]
	}
	return uint32(x), nil
}

// header reads the header of a run or of groups: a count and, in the lowest bit, which of the
// two follows.
func (h *hybrid) header() error {
	n, size := binary.Uvarint(h.b)
	if size <= 0 {
		return errValues
	}
	h.b = h.b[size:]
	count := n >> 1
	h.packed = n&1 == 1
	if h.packed { // count groups of 8 values
		// A group takes at least one byte. One group more is tolerated: it may be empty padding, and next checks
		// the bytes of every value.
		if count > uint64(len(h.b))+1 && h.width > 0 {
			return errValues
		}
		h.left = count * 8
		h.bit = 0
		return nil
	}
	width := (h.width + 7) / 8 // bytes of the run's value
	if len(h.b) < width {
		return errValues
	}
	h.left = count
	h.run = 0
	for i, b := range h.b[:width] {
		h.run |= uint32(b) << (8 * i)
	}
	h.b = h.b[width:]
	return nil
}

// bitsAt reads width bits, at most 64, starting at offset bit, least significant first. It
// returns false if b is too short.
func bitsAt(b []byte, bit, width int) (uint64, bool) {
	if bit+width > 8*len(b) {
		return 0, false
	}
	var x uint64
	for got := 0; got < width; {
		offset := (bit + got) % 8
		x |= uint64(b[(bit+got)/8]>>offset) << got
		got += 8 - offset
	}
	if width < 64 {
		x &= 1<<width - 1
	}
	return x, true
}

// booleans decodes bit-packed booleans.
type booleans struct {
	b   []byte
	bit int
}

func (p *booleans) next() (value, error) {
	x, ok := bitsAt(p.b, p.bit, 1)
	if !ok {
		return value{}, errValues
	}
	p.bit++
	return value{bits: x}, nil
}

// booleanRuns decodes booleans in the hybrid encoding.
type booleanRuns struct{ hybrid }

func (p *booleanRuns) next() (value, error) {
	x, err := p.hybrid.next()
	return value{bits: uint64(x)}, err
}

// plain decodes values stored one after another.
type plain struct {
	b    []byte
	leaf *node
}

func (p *plain) next() (value, error) {
	n := p.leaf.size
	if p.leaf.kind == kindBytes {
		if len(p.b) < 4 {
			return value{}, errValues
		}
		size := binary.LittleEndian.Uint32(p.b)
		if p.b = p.b[4:]; uint64(size) > uint64(len(p.b)) {
			return value{}, errValues
		}
		n = int(size)
	}
	if len(p.b) < n {
		return value{}, errValues
	}
	v := decodePlain(p.leaf.kind, p.b[:n:n])
	p.b = p.b[n:]
	return v, nil
}

// decodePlain converts the plain encoding of a value. Byte arrays share the memory of b.
func decodePlain(kind int32, b []byte) value {
	switch kind {
	case kindInt32:
		return value{bits: uint64(int64(int32(binary.LittleEndian.Uint32(b))))}
	case kindFloat:
		return value{bits: uint64(binary.LittleEndian.Uint32(b))}
	case kindInt64, kindDouble:
		return value{bits: binary.LittleEndian.Uint64(b)}
	}
	return value{bytes: b}
}

func newSplit(b []byte, leaf *node) (*splitValues, error) {
	if leaf.size == 0 {
		return nil, fmt.Errorf("encoding BYTE_STREAM_SPLIT of a column without a fixed length")
	}
	return &splitValues{b: b, kind: leaf.kind, n: len(b) / leaf.size, buf: make([]byte, leaf.size)}, nil
}

// splitValues decodes byte-stream-split values: first all first bytes, then all
// second bytes, and so on.
type splitValues struct {
	b     []byte
	kind  int32
	n, at int    // number of values, and index of the next one
	buf   []byte // bytes of the current value
}

func (p *splitValues) next() (value, error) {
	if p.at >= p.n {
		return value{}, errValues
	}
	for i := range p.buf {
		p.buf[i] = p.b[i*p.n+p.at]
	}
	p.at++
	return decodePlain(p.kind, p.buf), nil
}

// dictionary holds the values that a column's pages refer to.
type dictionary struct {
	b    []byte // the values in plain encoding
	leaf *node
	// starts[i] is the offset in b of byte array i, after its 4-byte length. starts[n] is 4 more than
	// the end of the last one, so that array i ends at starts[i+1]-4. starts is nil for other types.
	starts []uint32
	n      int // number of values
}

func newDictionary(b []byte, leaf *node, n int) (*dictionary, error) {
	minSize := leaf.size // of a value
	switch leaf.kind {
	case kindBoolean:
		return nil, fmt.Errorf("dictionary of booleans")
	case kindBytes:
		minSize = 4 // the length
	}
	if n < 0 || n > len(b)/minSize {
		return nil, fmt.Errorf("dictionary of %d bytes claims to have %d values", len(b), n)
	}
	d := &dictionary{b: b, leaf: leaf, n: n}
	if leaf.kind != kindBytes {
		return d, nil
	}
	d.starts = make([]uint32, 0, n+1)
	at := uint64(0)
	for range n {
		if at+4 > uint64(len(b)) {
			return nil, errValues
		}
		d.starts = append(d.starts, uint32(at)+4)
		if at += 4 + uint64(binary.LittleEndian.Uint32(b[at:])); at > uint64(len(b)) {
			return nil, errValues
		}
	}
	d.starts = append(d.starts, uint32(at)+4)
	return d, nil
}

// at returns value i of the dictionary.
func (d *dictionary) at(i uint32) (value, error) {
	if uint64(i) >= uint64(d.n) {
		return value{}, fmt.Errorf("value %d of a dictionary of %d", i, d.n)
	}
	if d.starts != nil {
		return value{bytes: d.b[d.starts[i] : d.starts[i+1]-4]}, nil
	}
	return decodePlain(d.leaf.kind, d.b[int(i)*d.leaf.size:(int(i)+1)*d.leaf.size]), nil
}

// indices decodes values stored as indices of the dictionary.
type indices struct {
	hybrid
	dict *dictionary
}

func (p *indices) next() (value, error) {
	i, err := p.hybrid.next()
	if err != nil {
		return value{}, err
	}
	return p.dict.at(i)
}

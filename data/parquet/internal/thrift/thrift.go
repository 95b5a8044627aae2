// Package thrift reads structures of Thrift's compact protocol that nobody vouches
// for.
package thrift

import (
	"errors"
	"fmt"
)

// The types of Thrift's compact protocol.
const (
	True   = 1
	False  = 2
	Byte   = 3
	I16    = 4
	I32    = 5
	I64    = 6
	Double = 7
	Binary = 8
	List   = 9
	Set    = 10
	Map    = 11
	Struct = 12
)

// maxDepth is how deep structures may nest; Parquet's own nest six deep.
const maxDepth = 16

// ErrShort says that a structure goes on beyond its bytes.
var ErrShort = errors.New("cut off")

// Reader reads Thrift's compact protocol. The first fault stays in Err; what is
// read after it is zero. Nothing is allocated in proportion to a number that the
// bytes only claim.
type Reader struct {
	b     []byte
	at    int
	depth int
	Err   error
}

// NewReader reads b, which stays the caller's.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// At is how many bytes were read.
func (c *Reader) At() int { return c.at }

// Fail ends the reading with a fault, unless one came before it.
func (c *Reader) Fail(err error) {
	if c.Err == nil {
		c.Err = err
	}
	c.at = len(c.b)
}

// Byte reads one byte.
func (c *Reader) Byte() byte {
	if c.at >= len(c.b) {
		c.Fail(ErrShort)
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *Reader) uvarint() uint64 {
	var x uint64
	for shift := 0; shift < 64; shift += 7 {
		b := c.Byte()
		x |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return x
		}
	}
	c.Fail(errors.New("number of more than 64 bits"))
	return 0
}

// Varint reads a number.
func (c *Reader) Varint() int64 {
	x := c.uvarint()
	return int64(x>>1) ^ -int64(x&1)
}

// I32 reads a number that fits 32 bits.
func (c *Reader) I32() int32 {
	x := c.Varint()
	if x != int64(int32(x)) {
		c.Fail(fmt.Errorf("number %d, expected one of 32 bits", x))
		return 0
	}
	return int32(x)
}

// Binary reads bytes, which stay those of b.
func (c *Reader) Binary() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)-c.at) {
		c.Fail(ErrShort)
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at]
}

// Structure reads fields until the last; visit reads the value of those that it
// knows and returns false for the others, which are skipped.
func (c *Reader) Structure(visit func(id int16, kind byte) bool) {
	if c.depth++; c.depth > maxDepth {
		c.Fail(fmt.Errorf("structures nest more than %d deep", maxDepth))
	}
	id := int16(0)
	for c.Err == nil {
		header := c.Byte()
		kind := header & 0xf
		if kind == 0 {
			break
		}
		if delta := header >> 4; delta != 0 {
			id += int16(delta)
		} else {
			id = int16(c.Varint())
		}
		if !visit(id, kind) {
			c.skip(kind)
		}
	}
	c.depth--
}

// List calls visit to read each element.
func (c *Reader) List(visit func(kind byte)) {
	header := c.Byte()
	n, kind := uint64(header>>4), header&0xf
	if n == 15 {
		n = c.uvarint()
	}
	if n > uint64(len(c.b)-c.at) { // an element has at least a byte
		c.Fail(ErrShort)
		return
	}
	for range n {
		if c.Err != nil {
			return
		}
		visit(kind)
	}
}

func (c *Reader) skip(kind byte) {
	switch kind {
	case True, False: // in the field's header
	case Byte:
		c.Byte()
	case I16, I32, I64:
		c.uvarint()
	case Double:
		for range 8 {
			c.Byte()
		}
	case Binary:
		c.Binary()
	case List, Set:
		if c.depth++; c.depth > maxDepth {
			c.Fail(fmt.Errorf("lists nest more than %d deep", maxDepth))
		}
		c.List(c.skipElement)
		c.depth--
	case Map:
		c.skipMap()
	case Struct:
		c.Structure(func(int16, byte) bool { return false })
	default:
		c.Fail(fmt.Errorf("field of unknown type %d", kind))
	}
}

// skipElement skips an element of a list or map, where a boolean has a byte.
func (c *Reader) skipElement(kind byte) {
	if kind == True || kind == False {
		kind = Byte
	}
	c.skip(kind)
}

func (c *Reader) skipMap() {
	n := c.uvarint()
	if n == 0 {
		return
	}
	kinds := c.Byte()
	if n > uint64(len(c.b)-c.at) {
		c.Fail(ErrShort)
		return
	}
	if c.depth++; c.depth > maxDepth {
		c.Fail(fmt.Errorf("maps nest more than %d deep", maxDepth))
	}
	for range n {
		c.skipElement(kinds >> 4)
		c.skipElement(kinds & 0xf)
		if c.Err != nil {
			break
		}
	}
	c.depth--
}

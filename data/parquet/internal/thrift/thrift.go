// Package thrift reads untrusted structures in Thrift's compact protocol.
package thrift

import (
	"errors"
	"fmt"
)

// Types of Thrift's compact protocol.
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

// maxDepth is the maximum nesting depth; Parquet's own structures nest six deep.
const maxDepth = 16

// ErrShort reports that a structure extends beyond its bytes.
var ErrShort = errors.New("truncated")

// Reader reads Thrift's compact protocol. Err keeps the first error; later reads
// return zero. Allocations are never proportional to an unverified count.
type Reader struct {
	b     []byte
	at    int
	depth int
	Err   error
}

// NewReader returns a Reader of b. The caller keeps ownership of b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// At returns the number of bytes read.
func (c *Reader) At() int { return c.at }

// Fail stops reading with err, unless an earlier error is set.
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

// Varint reads a zigzag-encoded number.
func (c *Reader) Varint() int64 {
	x := c.uvarint()
	return int64(x>>1) ^ -int64(x&1)
}

// I32 reads a number that must fit 32 bits.
func (c *Reader) I32() int32 {
	x := c.Varint()
	if x != int64(int32(x)) {
		c.Fail(fmt.Errorf("number %d, expected one of 32 bits", x))
		return 0
	}
	return int32(x)
}

// Binary reads a byte string; it aliases the Reader's bytes.
func (c *Reader) Binary() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)-c.at) {
		c.Fail(ErrShort)
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at]
}

// Structure reads a structure's fields. visit reads the values of fields it knows
// and returns false for others, which Structure skips.
func (c *Reader) Structure(visit func(id int16, kind byte) bool) {
	if c.depth++; c.depth > maxDepth {
		c.Fail(fmt.Errorf("structures nested more than %d deep", maxDepth))
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
	if n > uint64(len(c.b)-c.at) { // an element takes at least one byte
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
	case True, False: // the value is in the field's header
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
			c.Fail(fmt.Errorf("lists nested more than %d deep", maxDepth))
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

// skipElement skips an element of a list or map, in which a boolean takes one
// byte.
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
		c.Fail(fmt.Errorf("maps nested more than %d deep", maxDepth))
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

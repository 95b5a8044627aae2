package parquet

import (
	"errors"
	"fmt"
)

// Types of Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// maxNesting is the maximum nesting depth of structures; Parquet's own nest six deep.
const maxNesting = 16

// errShort reports that a structure extends beyond its bytes.
var errShort = errors.New("truncated")

// thriftReader reads untrusted structures in Thrift's compact protocol. err keeps the first
// error; later reads return zero. Allocations are never proportional to an unverified count.
type thriftReader struct {
	b     []byte
	at    int // bytes read
	depth int
	err   error
}

// fail stops reading with err, unless an earlier error is set.
func (c *thriftReader) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.at = len(c.b)
}

// byte reads one byte.
func (c *thriftReader) byte() byte {
	if c.at >= len(c.b) {
		c.fail(errShort)
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *thriftReader) uvarint() uint64 {
	var x uint64
	for shift := 0; shift < 64; shift += 7 {
		b := c.byte()
		x |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return x
		}
	}
	c.fail(errors.New("number of more than 64 bits"))
	return 0
}

// varint reads a zigzag-encoded number.
func (c *thriftReader) varint() int64 { return zigzag(c.uvarint()) }

// i32 reads a number that must fit 32 bits.
func (c *thriftReader) i32() int32 {
	x := c.varint()
	if x != int64(int32(x)) {
		c.fail(fmt.Errorf("number %d, expected one of 32 bits", x))
		return 0
	}
	return int32(x)
}

// binary reads a byte string; it aliases the reader's bytes.
func (c *thriftReader) binary() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)-c.at) {
		c.fail(errShort)
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at]
}

// structure reads a structure's fields. visit reads the values of fields it knows
// and returns false for others, which structure skips.
func (c *thriftReader) structure(visit func(id int16, kind byte) bool) {
	if c.depth++; c.depth > maxNesting {
		c.fail(fmt.Errorf("structures nested more than %d deep", maxNesting))
	}
	id := int16(0)
	for c.err == nil {
		header := c.byte()
		kind := header & 0xf
		if kind == 0 {
			break
		}
		if delta := header >> 4; delta != 0 {
			id += int16(delta)
		} else {
			id = int16(c.varint())
		}
		if !visit(id, kind) {
			c.skip(kind)
		}
	}
	c.depth--
}

// list reads a list's header and calls visit to read each element.
func (c *thriftReader) list(visit func(kind byte)) {
	header := c.byte()
	n, kind := uint64(header>>4), header&0xf
	if n == 15 {
		n = c.uvarint()
	}
	if n > uint64(len(c.b)-c.at) { // an element takes at least one byte
		c.fail(errShort)
		return
	}
	for range n {
		if c.err != nil {
			return
		}
		visit(kind)
	}
}

// skip reads a field's value and drops it.
func (c *thriftReader) skip(kind byte) {
	switch kind {
	case thriftTrue, thriftFalse: // the value is in the field's header
	case thriftByte:
		c.byte()
	case thriftI16, thriftI32, thriftI64:
		c.uvarint()
	case thriftDouble:
		for range 8 {
			c.byte()
		}
	case thriftBinary:
		c.binary()
	case thriftList, thriftSet:
		if c.depth++; c.depth > maxNesting {
			c.fail(fmt.Errorf("lists nested more than %d deep", maxNesting))
		}
		c.list(c.skipElement)
		c.depth--
	case thriftMap:
		c.skipMap()
	case thriftStruct:
		c.structure(func(int16, byte) bool { return false })
	default:
		c.fail(fmt.Errorf("field of unknown type %d", kind))
	}
}

// skipElement skips an element of a list or map, in which a boolean takes one
// byte.
func (c *thriftReader) skipElement(kind byte) {
	if kind == thriftTrue || kind == thriftFalse {
		kind = thriftByte
	}
	c.skip(kind)
}

// skipMap reads a map and drops it.
func (c *thriftReader) skipMap() {
	n := c.uvarint()
	if n == 0 {
		return
	}
	kinds := c.byte() // of keys, in the upper four bits, and of values
	if n > uint64(len(c.b)-c.at) {
		c.fail(errShort)
		return
	}
	if c.depth++; c.depth > maxNesting {
		c.fail(fmt.Errorf("maps nested more than %d deep", maxNesting))
	}
	for range n {
		c.skipElement(kinds >> 4)
		c.skipElement(kinds & 0xf)
		if c.err != nil {
			break
		}
	}
	c.depth--
}

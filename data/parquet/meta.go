package parquet

import (
	"fmt"

	"github.com/easyrl/easyrl/data/parquet/internal/thrift"
)

// element is a schema node as listed in the footer, in depth-first order.
type element struct {
	kind       int32 // physical type, -1 for a group
	length     int32 // of a fixed-length byte array
	repetition int32
	name       string
	children   int32
	converted  int32 // -1: none
	scale      int32
	logical    int16 // field of the LogicalType union; 0: none
	unit       int16 // field of the TimeUnit union, for times
	utc        bool
	bits       int8
	unsigned   bool
}

// chunk is one column of a row group.
type chunk struct {
	kind, codec int32
	values      int64
	size        int64 // of all pages including headers
	data, dict  int64 // offsets of the first page and of the dictionary; dict 0: none
	known       bool  // has metadata
	encrypted   bool
	elsewhere   bool // in another file
}

type rowGroup struct {
	rows   int64
	chunks []chunk
}

// metaReader reads Parquet's metadata structures.
type metaReader struct{ *thrift.Reader }

// footer is the part of FileMetaData that we use.
type footer struct {
	rows   int64
	schema []element
	groups []rowGroup
}

const (
	maxElements = 1 << 16 // of the schema
	maxChunks   = 1 << 20
)

func parseFooter(b []byte) (*footer, error) {
	c := metaReader{thrift.NewReader(b)}
	f := new(footer)
	chunks := 0
	c.Structure(func(id int16, kind byte) bool {
		switch {
		case id == 2 && kind == thrift.List:
			c.List(func(byte) {
				if f.schema = append(f.schema, c.element()); len(f.schema) > maxElements {
					c.Fail(fmt.Errorf("more than %d columns", maxElements))
				}
			})
		case id == 3 && kind == thrift.I64:
			f.rows = c.Varint()
		case id == 4 && kind == thrift.List:
			c.List(func(byte) {
				g := c.rowGroup(maxChunks - chunks)
				chunks += len(g.chunks) + 1
				f.groups = append(f.groups, g)
			})
		case id == 8 && kind == thrift.Struct:
			c.Fail(fmt.Errorf("encrypted files are not supported"))
		default:
			return false
		}
		return true
	})
	return f, c.Err
}

func (c metaReader) element() element {
	e := element{kind: -1, converted: -1}
	c.Structure(func(id int16, kind byte) bool {
		switch {
		case kind == thrift.I32 && id == 1:
			e.kind = c.I32()
		case kind == thrift.I32 && id == 2:
			e.length = c.I32()
		case kind == thrift.I32 && id == 3:
			e.repetition = c.I32()
		case kind == thrift.Binary && id == 4:
			e.name = string(c.Binary())
		case kind == thrift.I32 && id == 5:
			e.children = c.I32()
		case kind == thrift.I32 && id == 6:
			e.converted = c.I32()
		case kind == thrift.I32 && id == 7:
			e.scale = c.I32()
		case kind == thrift.Struct && id == 10:
			c.logical(&e)
		default:
			return false
		}
		return true
	})
	return e
}

// logical reads the LogicalType union.
func (c metaReader) logical(e *element) {
	c.Structure(func(id int16, kind byte) bool {
		e.logical = id
		if kind != thrift.Struct {
			return false
		}
		c.Structure(func(field int16, kind byte) bool {
			switch {
			case id == logicalDecimal && field == 1 && kind == thrift.I32:
				e.scale = c.I32()
			case (id == logicalTime || id == logicalTimestamp) && field == 1:
				e.utc = kind == thrift.True
				return false
			case (id == logicalTime || id == logicalTimestamp) && field == 2 && kind == thrift.Struct:
				c.Structure(func(unit int16, _ byte) bool {
					e.unit = unit
					return false
				})
			case id == logicalInteger && field == 1 && kind == thrift.Byte:
				e.bits = int8(c.Byte())
			case id == logicalInteger && field == 2:
				e.unsigned = kind == thrift.False
				return false
			default:
				return false
			}
			return true
		})
		return true
	})
}

func (c metaReader) rowGroup(most int) rowGroup {
	var g rowGroup
	c.Structure(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thrift.List:
			c.List(func(byte) {
				if g.chunks = append(g.chunks, c.chunk()); len(g.chunks) >= most {
					c.Fail(fmt.Errorf("more than %d column chunks", maxChunks))
				}
			})
		case id == 3 && kind == thrift.I64:
			g.rows = c.Varint()
		default:
			return false
		}
		return true
	})
	return g
}

func (c metaReader) chunk() chunk {
	var k chunk
	c.Structure(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thrift.Binary:
			k.elsewhere = len(c.Binary()) > 0
		case id == 3 && kind == thrift.Struct:
			c.chunkMeta(&k)
		case id == 8 || id == 9:
			k.encrypted = true
			return false
		default:
			return false
		}
		return true
	})
	return k
}

func (c metaReader) chunkMeta(k *chunk) {
	k.known = true
	c.Structure(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thrift.I32:
			k.kind = c.I32()
		case id == 4 && kind == thrift.I32:
			k.codec = c.I32()
		case id == 5 && kind == thrift.I64:
			k.values = c.Varint()
		case id == 7 && kind == thrift.I64:
			k.size = c.Varint()
		case id == 9 && kind == thrift.I64:
			k.data = c.Varint()
		case id == 11 && kind == thrift.I64:
			k.dict = c.Varint()
		default:
			return false
		}
		return true
	})
}

// pageHeader is the part of PageHeader that we use.
type pageHeader struct {
	kind           int32
	size, packed   int32 // uncompressed and compressed size
	crc            uint32
	hasCRC         bool
	values         int32
	encoding       int32
	defLen, repLen int32 // version 2
	plain          bool  // version 2: not compressed
	levels         [2]int32
}

func parsePageHeader(b []byte) (h pageHeader, n int, err error) {
	c := metaReader{thrift.NewReader(b)}
	c.Structure(func(id int16, kind byte) bool {
		switch {
		case kind == thrift.I32 && id == 1:
			h.kind = c.I32()
		case kind == thrift.I32 && id == 2:
			h.size = c.I32()
		case kind == thrift.I32 && id == 3:
			h.packed = c.I32()
		case kind == thrift.I32 && id == 4:
			h.crc, h.hasCRC = uint32(c.I32()), true
		case kind == thrift.Struct && (id == 5 || id == 7):
			c.Structure(func(field int16, kind byte) bool {
				return kind == thrift.I32 && c.dataHeader(&h, field)
			})
		case kind == thrift.Struct && id == 8:
			c.Structure(func(field int16, kind byte) bool {
				if field == 7 {
					h.plain = kind == thrift.False
					return false
				}
				return kind == thrift.I32 && c.dataHeaderV2(&h, field)
			})
		default:
			return false
		}
		return true
	})
	return h, c.At(), c.Err
}

func (c metaReader) dataHeader(h *pageHeader, field int16) bool {
	switch field {
	case 1:
		h.values = c.I32()
	case 2:
		h.encoding = c.I32()
	case 3, 4:
		h.levels[field-3] = c.I32()
	default:
		return false
	}
	return true
}

func (c metaReader) dataHeaderV2(h *pageHeader, field int16) bool {
	switch field {
	case 1:
		h.values = c.I32()
	case 4:
		h.encoding = c.I32()
	case 5:
		h.defLen = c.I32()
	case 6:
		h.repLen = c.I32()
	default:
		return false
	}
	return true
}

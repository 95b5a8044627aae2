package parquet

import "fmt"

// element is a schema node as listed in the footer, in depth-first order.
type element struct {
	kind       int32 // physical type, -1 for a group
	length     int32 // bytes of a value of type kindFixed
	repetition int32
	name       string
	children   int32 // number of children
	converted  int32 // ConvertedType; -1 for none
	scale      int32 // decimal digits after the point, for decimals
	logical    int16 // field of the LogicalType union; 0 for none
	unit       int16 // field of the TimeUnit union, for times; 0 for none
	utc        bool  // a time is in UTC, not in local time
	unsigned   bool  // an integer is unsigned
}

// chunk is one column of a row group.
type chunk struct {
	kind, codec int32
	values      int64 // number of values, including nulls
	size        int64 // bytes of all pages including headers
	data        int64 // offset of the first data page in the file
	dict        int64 // offset of the dictionary page; 0 for none
	known       bool  // the footer has the chunk's metadata
	encrypted   bool
	elsewhere   bool // the data is in another file
}

type rowGroup struct {
	rows   int64
	chunks []chunk // by leaf
}

// footer is the part of FileMetaData that this package uses.
type footer struct {
	schema []element
	groups []rowGroup
}

const (
	maxElements = 1 << 16 // maximum number of elements of the schema
	maxChunks   = 1 << 20 // maximum number of column chunks and row groups
)

// The ids of fields below are those of parquet.thrift.

func parseFooter(b []byte) (*footer, error) {
	c := &thriftReader{b: b}
	f := new(footer)
	items := 0 // row groups and their chunks
	c.structure(func(id int16, kind byte) bool {
		switch {
		case id == 2 && kind == thriftList:
			c.list(func(byte) {
				if f.schema = append(f.schema, c.element()); len(f.schema) > maxElements {
					c.fail(fmt.Errorf("more than %d columns", maxElements))
				}
			})
		case id == 4 && kind == thriftList:
			c.list(func(byte) {
				items++
				g := c.rowGroup(maxChunks - items)
				items += len(g.chunks)
				f.groups = append(f.groups, g)
			})
		case id == 8 && kind == thriftStruct:
			c.fail(fmt.Errorf("encrypted files are not supported"))
		default:
			return false
		}
		return true
	})
	return f, c.err
}

func (c *thriftReader) element() element {
	e := element{kind: -1, converted: -1}
	c.structure(func(id int16, kind byte) bool {
		switch {
		case kind == thriftI32 && id == 1:
			e.kind = c.i32()
		case kind == thriftI32 && id == 2:
			e.length = c.i32()
		case kind == thriftI32 && id == 3:
			e.repetition = c.i32()
		case kind == thriftBinary && id == 4:
			e.name = string(c.binary())
		case kind == thriftI32 && id == 5:
			e.children = c.i32()
		case kind == thriftI32 && id == 6:
			e.converted = c.i32()
		case kind == thriftI32 && id == 7:
			e.scale = c.i32()
		case kind == thriftStruct && id == 10:
			c.logical(&e)
		default:
			return false
		}
		return true
	})
	return e
}

// logical reads the LogicalType union.
func (c *thriftReader) logical(e *element) {
	c.structure(func(id int16, kind byte) bool {
		e.logical = id
		if kind != thriftStruct {
			return false
		}
		c.structure(func(field int16, kind byte) bool {
			switch {
			case id == logicalDecimal && field == 1 && kind == thriftI32:
				e.scale = c.i32()
			case (id == logicalTime || id == logicalTimestamp) && field == 1:
				e.utc = kind == thriftTrue
				return false
			case (id == logicalTime || id == logicalTimestamp) && field == 2 && kind == thriftStruct:
				c.structure(func(unit int16, _ byte) bool {
					e.unit = unit
					return false
				})
			case id == logicalInteger && field == 2:
				e.unsigned = kind == thriftFalse
				return false
			default:
				return false
			}
			return true
		})
		return true
	})
}

// rowGroup reads a RowGroup of at most limit column chunks. A negative limit allows no row group at all.
func (c *thriftReader) rowGroup(limit int) rowGroup {
	var g rowGroup
	check := func() {
		if len(g.chunks) > limit {
			c.fail(fmt.Errorf("more than %d row groups and column chunks", maxChunks))
		}
	}
	check()
	c.structure(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thriftList:
			c.list(func(byte) {
				g.chunks = append(g.chunks, c.chunk())
				check()
			})
		case id == 3 && kind == thriftI64:
			g.rows = c.varint()
		default:
			return false
		}
		return true
	})
	return g
}

// chunk reads a ColumnChunk.
func (c *thriftReader) chunk() chunk {
	var k chunk
	c.structure(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thriftBinary:
			k.elsewhere = len(c.binary()) > 0
		case id == 3 && kind == thriftStruct:
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

// chunkMeta reads a ColumnMetaData.
func (c *thriftReader) chunkMeta(k *chunk) {
	k.known = true
	c.structure(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thriftI32:
			k.kind = c.i32()
		case id == 4 && kind == thriftI32:
			k.codec = c.i32()
		case id == 5 && kind == thriftI64:
			k.values = c.varint()
		case id == 7 && kind == thriftI64:
			k.size = c.varint()
		case id == 9 && kind == thriftI64:
			k.data = c.varint()
		case id == 11 && kind == thriftI64:
			k.dict = c.varint()
		default:
			return false
		}
		return true
	})
}

// pageHeader is the part of PageHeader that this package uses.
type pageHeader struct {
	kind           int32
	size           int32  // bytes of the uncompressed page
	compressedSize int32  // bytes of the page in the file
	crc            uint32 // CRC-32 of the compressed page, valid if hasCRC is set
	hasCRC         bool
	values         int32 // number of values, including nulls
	encoding       int32
	defLen, repLen int32    // bytes of definition and repetition levels, in version 2
	uncompressed   bool     // the values are not compressed, in version 2
	levels         [2]int32 // encodings of definition and repetition levels, in version 1
}

// parsePageHeader returns the header that b starts with, and its size. The error is errShort
// if b ends within the header.
func parsePageHeader(b []byte) (h pageHeader, n int, err error) {
	c := &thriftReader{b: b}
	c.structure(func(id int16, kind byte) bool {
		switch {
		case kind == thriftI32 && id == 1:
			h.kind = c.i32()
		case kind == thriftI32 && id == 2:
			h.size = c.i32()
		case kind == thriftI32 && id == 3:
			h.compressedSize = c.i32()
		case kind == thriftI32 && id == 4:
			h.crc, h.hasCRC = uint32(c.i32()), true
		case kind == thriftStruct && (id == 5 || id == 7):
			c.structure(func(field int16, kind byte) bool {
				return kind == thriftI32 && c.dataHeader(&h, field)
			})
		case kind == thriftStruct && id == 8:
			c.structure(func(field int16, kind byte) bool {
				if field == 7 {
					h.uncompressed = kind == thriftFalse
					return false
				}
				return kind == thriftI32 && c.dataHeaderV2(&h, field)
			})
		default:
			return false
		}
		return true
	})
	return h, c.at, c.err
}

// dataHeader reads a field of a DataPageHeader or DictionaryPageHeader, or returns false.
func (c *thriftReader) dataHeader(h *pageHeader, field int16) bool {
	switch field {
	case 1:
		h.values = c.i32()
	case 2:
		h.encoding = c.i32()
	case 3, 4:
		h.levels[field-3] = c.i32()
	default:
		return false
	}
	return true
}

// dataHeaderV2 reads a field of a DataPageHeaderV2, or returns false.
func (c *thriftReader) dataHeaderV2(h *pageHeader, field int16) bool {
	switch field {
	case 1:
		h.values = c.i32()
	case 4:
		h.encoding = c.i32()
	case 5:
		h.defLen = c.i32()
	case 6:
		h.repLen = c.i32()
	default:
		return false
	}
	return true
}

package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
)

// Types of pages, numbered as in Parquet.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// maxLive is the maximum number of bytes of all pages held at the same time.
const maxLive = 512 << 20

// column iterates over the values of one column of a row group. It holds one page and the
// dictionary.
type column struct {
	file  *File
	leaf  *node
	codec int32
	at    int64 // offset of the next page in the file
	end   int64 // end of the last page in the file
	left  int64 // number of values left in the chunk, including the current page

	dict     *dictionary // nil before a dictionary page
	dictLive int64       // bytes of dict that count as live
	buf      []byte      // content of the page
	packed   []byte      // the page, or a header, as in the file
	pageLeft int64       // number of values left in the page
	reps     *hybrid     // repetition levels; nil if all are 0
	defs     *hybrid     // definition levels; nil if all equal the leaf's
	values   values      // non-null values

	rep, def uint8 // levels of the current value
	done     bool  // no value is left
}

// openColumn returns a column at its first value. If the error is about that value, it
// returns the column too, for close.
func (f *File) openColumn(g *rowGroup, leaf *node) (*column, error) {
	k := &g.chunks[leaf.leaf]
	switch {
	case k.encrypted:
		return nil, errors.New("encrypted files are not supported")
	case k.elsewhere:
		return nil, errors.New("data in another file is not supported")
	case !k.known:
		return nil, errors.New("has no metadata")
	case k.kind != leaf.kind:
		return nil, fmt.Errorf("type %d, but %d in the schema", k.kind, leaf.kind)
	}
	if _, ok := maxRatio(k.codec); !ok {
		return nil, fmt.Errorf("compressed by %s: not supported, expected none, snappy, gzip, zstd or lz4",
			codecName(k.codec))
	}
	start := k.data
	if k.dict > 0 && k.dict < start {
		start = k.dict
	}
	if start < 0 || k.size < 0 || start > f.size || k.size > f.size-start {
		return nil, fmt.Errorf("bytes %d to %d are outside the file's %d", start, start+k.size, f.size)
	}
	c := &column{file: f, leaf: leaf, codec: k.codec, at: start, end: start + k.size, left: k.values}
	return c, c.advance()
}

// close releases the column's memory.
func (c *column) close() {
	c.file.live -= int64(cap(c.buf)) + int64(cap(c.packed)) + c.dictLive
	c.buf, c.packed, c.dict, c.dictLive = nil, nil, nil, 0
}

// advance moves to the next value and reads its levels.
func (c *column) advance() error {
	for c.pageLeft == 0 {
		if c.left <= 0 {
			c.done = true
			return nil
		}
		if err := c.page(); err != nil {
			return err
		}
	}
	c.pageLeft--
	c.left--
	var err error
	if c.rep, err = level(c.reps, c.leaf.rep, 0); err == nil {
		c.def, err = level(c.defs, c.leaf.def, c.leaf.def)
	}
	return err
}

// level reads the next level of a page and checks that it is at most top. A nil h means that
// all levels are fallback.
func level(h *hybrid, top, fallback uint8) (uint8, error) {
	if h == nil {
		return fallback, nil
	}
	x, err := h.next()
	if err == nil && x > uint32(top) {
		err = fmt.Errorf("level %d, expected at most %d", x, top)
	}
	return uint8(x), err
}

// room returns buf resized to n bytes, within the file's limit on live memory.
func (c *column) room(buf []byte, n int) ([]byte, error) {
	if n > cap(buf) {
		if c.file.live += int64(n - cap(buf)); c.file.live > maxLive {
			return nil, fmt.Errorf("pages of more than %d MiB at a time", maxLive>>20)
		}
		buf = make([]byte, n)
	}
	return buf[:n], nil
}

// page reads the next page. It skips an index.
func (c *column) page() error {
	h, err := c.header()
	if err != nil {
		return err
	}
	switch h.kind {
	case pageIndex:
		c.at += int64(h.compressedSize)
		return nil
	case pageDictionary:
		return c.dictionary(h)
	case pageData:
		return c.data(h)
	case pageDataV2:
		return c.dataV2(h)
	}
	return fmt.Errorf("page of unknown type %d", h.kind)
}

// maxPageHeader is the size up to which header looks for the end of a page's header. Its
// statistics may be long.
const maxPageHeader = 1 << 24

// header reads and checks the header of the next page. Its size is not known, so header reads
// ever more bytes until the header is complete.
func (c *column) header() (pageHeader, error) {
	for n := int64(512); ; n *= 16 {
		n = min(n, c.end-c.at)
		buf, err := c.room(c.packed, int(n))
		if err != nil {
			return pageHeader{}, err
		}
		c.packed = buf
		if err := c.file.read(buf, c.at); err != nil {
			return pageHeader{}, err
		}
		h, used, err := parsePageHeader(buf)
		if errors.Is(err, errShort) && n < c.end-c.at && n < maxPageHeader {
			continue
		}
		if err != nil {
			return h, fmt.Errorf("page header at byte %d: %w", c.at, err)
		}
		c.at += int64(used)
		ratio, _ := maxRatio(c.codec)
		switch {
		case h.compressedSize < 0 || int64(h.compressedSize) > c.end-c.at:
			return h, fmt.Errorf("page of %d bytes, but the column has %d left", h.compressedSize, c.end-c.at)
		case h.size < 0 || h.size > maxPage:
			return h, fmt.Errorf("page of %d bytes, expected at most %d", h.size, maxPage)
		case int64(h.size) > int64(h.compressedSize)*ratio+256:
			return h, fmt.Errorf("page of %d bytes claims to decompress to %d", h.compressedSize, h.size)
		case h.values < 0:
			return h, fmt.Errorf("page of %d values", h.values)
		}
		return h, c.file.spend(32) // a charge per page bounds the number of empty pages
	}
}

// body reads a page into c.buf; the first raw bytes are uncompressed.
func (c *column) body(h pageHeader, raw int) error {
	var err error
	if c.packed, err = c.room(c.packed, int(h.compressedSize)); err != nil {
		return err
	}
	if c.buf, err = c.room(c.buf, int(h.size)); err != nil {
		return err
	}
	if err := c.file.read(c.packed, c.at); err != nil {
		return err
	}
	c.at += int64(h.compressedSize)
	if h.hasCRC && crc32.ChecksumIEEE(c.packed) != h.crc {
		return errors.New("page does not match its checksum")
	}
	if raw < 0 || raw > min(len(c.packed), len(c.buf)) {
		return fmt.Errorf("page of %d bytes with %d bytes of levels", len(c.packed), raw)
	}
	copy(c.buf, c.packed[:raw])
	if c.codec == codecNone || h.uncompressed {
		if len(c.packed) != len(c.buf) {
			return fmt.Errorf("page of %d bytes claims to hold %d", len(c.packed), len(c.buf))
		}
		copy(c.buf[raw:], c.packed[raw:])
		return nil
	}
	if raw == len(c.buf) {
		return nil // levels only
	}
	if err := c.file.codecs.decode(c.codec, c.buf[raw:], c.packed[raw:]); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// dictionary reads the dictionary page.
func (c *column) dictionary(h pageHeader) error {
	if c.dict != nil {
		return errors.New("two dictionaries, expected one")
	}
	if h.encoding != encodingPlain && h.encoding != encodingPlainDictionary {
		return fmt.Errorf("dictionary in encoding %d: not supported, expected %d", h.encoding, encodingPlain)
	}
	if err := c.body(h, 0); err != nil {
		return err
	}
	d, err := newDictionary(c.buf, c.leaf, int(h.values))
	if err != nil {
		return err
	}
	c.dict, c.dictLive = d, int64(cap(c.buf))+4*int64(cap(d.starts))
	c.file.live += 4 * int64(cap(d.starts))
	c.buf = nil // the dictionary owns the memory
	return nil
}

// data opens a version 1 page: length-prefixed levels, then values.
func (c *column) data(h pageHeader) error {
	if err := c.body(h, 0); err != nil {
		return err
	}
	b := c.buf
	var err error
	if c.reps, b, err = levelsOf(b, c.leaf.rep, h.levels[1]); err != nil {
		return err
	}
	if c.defs, b, err = levelsOf(b, c.leaf.def, h.levels[0]); err != nil {
		return err
	}
	return c.open(h, b)
}

// levelsOf returns the levels at the start of b, which their length precedes, and the bytes
// after them. A top of 0 means that the page has no levels.
func levelsOf(b []byte, top uint8, encoding int32) (*hybrid, []byte, error) {
	if top == 0 {
		return nil, b, nil
	}
	if encoding != encodingRLE {
		return nil, nil, fmt.Errorf("levels in encoding %d: not supported, expected %d", encoding, encodingRLE)
	}
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, errValues
	}
	n := 4 + int(binary.LittleEndian.Uint32(b))
	return &hybrid{b: b[4:n], width: bits.Len8(top)}, b[n:], nil
}

// dataV2 opens a version 2 page: its header has the lengths of the levels.
func (c *column) dataV2(h pageHeader) error {
	if h.defLen < 0 || h.repLen < 0 {
		return errors.New("page with levels of negative length")
	}
	if err := c.body(h, int(h.defLen)+int(h.repLen)); err != nil {
		return err
	}
	c.reps, c.defs = nil, nil
	if c.leaf.rep > 0 {
		c.reps = &hybrid{b: c.buf[:h.repLen], width: bits.Len8(c.leaf.rep)}
	}
	if c.leaf.def > 0 {
		c.defs = &hybrid{b: c.buf[h.repLen : h.repLen+h.defLen], width: bits.Len8(c.leaf.def)}
	}
	return c.open(h, c.buf[h.repLen+h.defLen:])
}

// open sets up the decoder of a page's values.
func (c *column) open(h pageHeader, b []byte) error {
	c.pageLeft = min(int64(h.values), c.left)
	isBytes := c.leaf.kind == kindBytes || c.leaf.kind == kindFixed
	isInteger := c.leaf.kind == kindInt32 || c.leaf.kind == kindInt64
	var err error
	switch {
	case h.encoding == encodingPlain && c.leaf.kind == kindBoolean:
		c.values = &booleans{b: b}
	case h.encoding == encodingPlain:
		c.values = &plain{b, c.leaf}
	case h.encoding == encodingDictionary || h.encoding == encodingPlainDictionary:
		c.values, err = c.indices(b)
	case h.encoding == encodingRLE && c.leaf.kind == kindBoolean:
		var h *hybrid
		if h, _, err = levelsOf(b, 1, encodingRLE); err == nil {
			c.values = &booleanRuns{*h}
		}
	case h.encoding == encodingSplit:
		c.values, err = newSplit(b, c.leaf)
	case h.encoding == encodingDelta && isInteger:
		var d *delta
		if d, err = newDelta(b); err == nil && c.leaf.kind == kindInt32 {
			c.values = narrow{d}
		} else if err == nil {
			c.values = d
		}
	case h.encoding == encodingDeltaLength && isBytes:
		if err = c.file.spend(int64(h.values)); err == nil { // the lengths are read twice
			c.values, err = newDeltaLengths(b, int(h.values))
		}
	case h.encoding == encodingDeltaBytes && isBytes:
		if err = c.file.spend(int64(h.values)); err == nil {
			c.values, err = newDeltaBytes(b, int(h.values))
		}
	default:
		err = fmt.Errorf("values in encoding %d: not supported for type %d", h.encoding, c.leaf.kind)
	}
	return err
}

// indices returns the decoder of values that are indices of the dictionary.
func (c *column) indices(b []byte) (values, error) {
	switch {
	case c.dict == nil:
		return nil, errors.New("values refer to a missing dictionary")
	case len(b) == 0:
		return &indices{hybrid{}, c.dict}, nil // all null
	case b[0] > 32:
		return nil, fmt.Errorf("dictionary indices of %d bits", b[0])
	}
	return &indices{hybrid{b: b[1:], width: int(b[0])}, c.dict}, nil
}

// value reads the current value.
func (c *column) value() (value, error) {
	v, err := c.values.next()
	if err == nil && (c.leaf.kind == kindInt96 || c.leaf.kind == kindFixed) && len(v.bytes) != c.leaf.size {
		err = fmt.Errorf("value of %d bytes, expected %d", len(v.bytes), c.leaf.size)
	}
	return v, err
}

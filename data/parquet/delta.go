package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxBlock is the maximum number of values in a block of delta encoding; writers
// use 128.
const maxBlock = 1 << 16

// delta decodes integers stored as differences: blocks of miniblocks, each with
// its own bit width.
type delta struct {
	b       []byte
	block   int // values per block
	minis   int // miniblocks per block
	left    uint64
	last    int64
	started bool

	min    int64
	widths []byte // widths of the remaining miniblocks
	mini   []byte // the current miniblock
	width  int
	at, n  int // position in the current miniblock, and its number of values
}

func newDelta(b []byte) (*delta, error) {
	d := &delta{b: b}
	block, minis := d.uvarint(), d.uvarint()
	d.left = d.uvarint()
	first := d.uvarint()
	if d.b == nil || block == 0 || block > maxBlock || minis == 0 || minis > block || block%minis != 0 ||
		block/minis%8 != 0 {
		return nil, errors.New("delta encoding with a malformed header")
	}
	d.block, d.minis, d.last = int(block), int(minis), zigzag(first)
	return d, nil
}

func zigzag(x uint64) int64 { return int64(x>>1) ^ -int64(x&1) }

// uvarint reads a number; it sets b to nil on error.
func (d *delta) uvarint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *delta) number() (int64, error) {
	if d.left == 0 {
		return 0, errValues
	}
	d.left--
	if !d.started {
		d.started = true
		return d.last, nil
	}
	if d.at == d.n {
		if err := d.advance(); err != nil {
			return 0, err
		}
	}
	x, ok := bitsAt(d.mini, d.at*d.width, d.width)
	if !ok {
		return 0, errValues
	}
	d.at++
	d.last += d.min + int64(x)
	return d.last, nil
}

// advance moves to the next miniblock.
func (d *delta) advance() error {
	if len(d.widths) == 0 {
		d.min = zigzag(d.uvarint())
		if d.b == nil || len(d.b) < d.minis {
			return errValues
		}
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
	}
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return fmt.Errorf("delta encoding with numbers of %d bits", d.width)
	}
	d.at, d.n = 0, d.block/d.minis
	size := min(d.n*d.width/8, len(d.b)) // the last miniblock may be truncated
	d.mini, d.b = d.b[:size], d.b[size:]
	return nil
}

// rest reads the remaining numbers, at most limit. It returns the bytes after
// them and their sum, and fails if one is negative.
func (d *delta) rest(limit int) (after []byte, sum int64, err error) {
	if d.left > uint64(limit) {
		return nil, 0, errors.New("delta encoding of more values than the page has")
	}
	for d.left > 0 {
		x, err := d.number()
		if err != nil {
			return nil, 0, err
		}
		if sum += x; x < 0 || sum < 0 {
			return nil, 0, errors.New("delta encoding of a negative length")
		}
	}
	return d.b, sum, nil
}

func (d *delta) next() (value, error) {
	x, err := d.number()
	return value{bits: uint64(x)}, err
}

// narrow decodes 32-bit deltas.
type narrow struct{ *delta }

func (d narrow) next() (value, error) {
	x, err := d.number()
	return value{bits: uint64(int64(int32(x)))}, err
}

// deltaLengths decodes byte arrays stored after all their lengths.
type deltaLengths struct {
	lengths *delta
	b       []byte
}

func newDeltaLengths(b []byte, limit int) (*deltaLengths, error) {
	lengths, err := newDelta(b)
	if err != nil {
		return nil, err
	}
	scout := *lengths
	data, sum, err := scout.rest(limit)
	if err != nil {
		return nil, err
	}
	if sum > int64(len(data)) {
		return nil, errValues
	}
	return &deltaLengths{lengths, data}, nil
}

func (d *deltaLengths) next() (value, error) {
	n, err := d.lengths.number()
	if err != nil {
		return value{}, err
	}
	v := value{bytes: d.b[:n:n]} // newDeltaLengths has checked the sum
	d.b = d.b[n:]
	return v, nil
}

// deltaBytes decodes byte arrays that share a prefix with their predecessor.
type deltaBytes struct {
	prefixes *delta
	suffixes *deltaLengths
	last     []byte
}

func newDeltaBytes(b []byte, limit int) (*deltaBytes, error) {
	prefixes, err := newDelta(b)
	if err != nil {
		return nil, err
	}
	scout := *prefixes
	data, _, err := scout.rest(limit)
	if err != nil {
		return nil, err
	}
	suffixes, err := newDeltaLengths(data, limit)
	if err != nil {
		return nil, err
	}
	return &deltaBytes{prefixes: prefixes, suffixes: suffixes}, nil
}

func (d *deltaBytes) next() (value, error) {
	n, err := d.prefixes.number()
	if err != nil {
		return value{}, err
	}
	if n > int64(len(d.last)) {
		return value{}, fmt.Errorf("delta encoding shares %d bytes with a value of %d", n, len(d.last))
	}
	v, err := d.suffixes.next()
	if err != nil {
		return value{}, err
	}
	d.last = append(d.last[:n], v.bytes...)
	return value{bytes: d.last}, nil
}

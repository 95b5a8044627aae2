package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxBlock is the maximum number of values in a block of delta encoding; writers
// use 128.
const maxBlock = 1 << 16

// delta decodes integers stored as differences (DELTA_BINARY_PACKED): blocks of miniblocks,
// each with its own bit width.
type delta struct {
	b       []byte // bytes after the current miniblock
	block   int    // number of values per block
	minis   int    // number of miniblocks per block
	left    uint64 // number of values left
	last    int64  // previous value, or the first one
	started bool   // the first value has been returned

	min    int64  // smallest difference in the block, which the stored ones are relative to
	widths []byte // bit widths of the remaining miniblocks of the block
	mini   []byte // current miniblock
	width  int    // bit width of the current miniblock
	at     int    // index of the next value in the current miniblock
	n      int    // number of values of a miniblock
}

// newDelta reads the header of encoded integers.
func newDelta(b []byte) (*delta, error) {
	d := &delta{b: b}
	block, minis := d.uvarint(), d.uvarint()
	d.left = d.uvarint()
	first := d.uvarint()
	goodBlock := block > 0 && block <= maxBlock
	goodMinis := minis > 0 && minis <= block && block%minis == 0 && (block/minis)%8 == 0
	if d.b == nil || !goodBlock || !goodMinis {
		return nil, errors.New("delta encoding with a malformed header")
	}
	d.block, d.minis, d.last = int(block), int(minis), zigzag(first)
	return d, nil
}

// zigzag returns the number that x encodes: 0, -1, 1, -2, …
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

// number returns the next integer.
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

// skipLengths reads the remaining numbers, which are lengths. It returns the bytes after
// them and their sum. It fails if there are more than limit or one is negative.
func (d *delta) skipLengths(limit int) (after []byte, sum int64, err error) {
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

// narrow decodes 32-bit integers, whose differences wrap at 32 bits.
type narrow struct{ *delta }

func (d narrow) next() (value, error) {
	x, err := d.number()
	return value{bits: uint64(int64(int32(x)))}, err
}

// deltaLengths decodes byte arrays stored after all their lengths (DELTA_LENGTH_BYTE_ARRAY).
type deltaLengths struct {
	lengths *delta
	b       []byte // remaining byte arrays
}

// newDeltaLengths returns the decoder of at most limit byte arrays. It reads all lengths once
// to find and check the byte arrays.
func newDeltaLengths(b []byte, limit int) (*deltaLengths, error) {
	lengths, err := newDelta(b)
	if err != nil {
		return nil, err
	}
	ahead := *lengths // a copy, so that lengths stays at the first one
	data, sum, err := ahead.skipLengths(limit)
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

// deltaBytes decodes byte arrays that share a prefix with their predecessor
// (DELTA_BYTE_ARRAY).
type deltaBytes struct {
	prefixes *delta        // lengths of the shared prefixes
	suffixes *deltaLengths // bytes after the prefixes
	last     []byte        // previous value
}

// newDeltaBytes returns the decoder of at most limit byte arrays.
func newDeltaBytes(b []byte, limit int) (*deltaBytes, error) {
	prefixes, err := newDelta(b)
	if err != nil {
		return nil, err
	}
	ahead := *prefixes // a copy, so that prefixes stays at the first one
	data, _, err := ahead.skipLengths(limit)
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

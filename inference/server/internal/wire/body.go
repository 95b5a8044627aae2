package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// ErrChecksum reports a body whose checksum differs from the given one.
var ErrChecksum = errors.New("wrong checksum")

// Checked is a body that withholds its last byte until the whole body has arrived with
// the right checksum, so that no reader mistakes a bad body for a complete one.
type Checked struct {
	Source io.Reader
	Size   int64        // -1 if unknown
	Before func() error // called before each read
	// Want returns the body's XXH64 in hexadecimal, the checksum that the HTTP interface
	// defines, or "" for none. It is called at the end of the body. A nil Want skips the
	// check.
	Want  func() string
	sum   *xxhash.Digest // nil before the first read and without Want
	read  int64
	last  byte // read but withheld
	whole bool // the whole body has arrived and is right
	err   error
}

// Read implements io.Reader.
func (b *Checked) Read(p []byte) (int, error) {
	for len(p) > 0 && b.err == nil {
		if b.whole {
			p[0] = b.last
			b.err = io.EOF
			return 1, io.EOF
		}
		if n := b.step(p); n > 0 {
			return n, nil
		}
	}
	return 0, b.err
}

// step reads into p after the withheld byte and withholds the new last one.
func (b *Checked) step(p []byte) int {
	var two [2]byte
	if len(p) == 1 && b.read > 0 { // no room for a byte after the withheld one
		defer func() { p[0] = two[0] }()
		return b.into(two[:])
	}
	return b.into(p)
}

func (b *Checked) into(p []byte) int {
	if b.sum == nil && b.Want != nil {
		b.sum = xxhash.New()
	}
	kept := int(min(b.read, 1))
	err := b.Before()
	n := 0
	if err == nil {
		n, err = b.Source.Read(p[kept:])
	}
	if b.sum != nil {
		_, _ = b.sum.Write(p[kept : kept+n]) // never fails
	}
	b.read += int64(n)
	if kept == 1 {
		p[0] = b.last
	}
	n += kept
	if n > 0 {
		b.last = p[n-1]
	}
	switch {
	case err == io.EOF: //nolint:errorlint // a wrapped io.EOF means a truncated body
		if b.err = b.verify(); b.err == nil && n == 0 {
			b.err = io.EOF
		}
		b.whole = b.err == nil
	case err != nil:
		b.err = fmt.Errorf("body ends after %d bytes: %w", b.read, err)
	}
	return max(n-1, 0)
}

// verify checks a body that has ended.
func (b *Checked) verify() error {
	if b.Size >= 0 && b.read != b.Size {
		return fmt.Errorf("body has %d bytes, expected %d: %w", b.read, b.Size, io.ErrUnexpectedEOF)
	}
	if b.Want == nil {
		return nil
	}
	want := b.Want()
	if want == "" {
		return nil
	}
	if got := fmt.Sprintf("%016x", b.sum.Sum64()); !strings.EqualFold(got, want) {
		return fmt.Errorf("body has checksum %s over %d bytes, expected %.40q: %w", got, b.read, want, ErrChecksum)
	}
	return nil
}

// Err returns the body's fault, io.EOF if all of it was read and right, or nil if some of
// it was not read.
func (b *Checked) Err() error { return b.err }

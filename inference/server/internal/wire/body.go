package wire

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// ErrChecksum is a body that is not the one whose checksum was given.
var ErrChecksum = errors.New("wrong checksum")

// Checked is a body whose last byte is given out only when all of it has
// come and its checksum is right: nobody can take a bad one for a whole one.
type Checked struct {
	Source io.Reader
	Size   int64        // -1 where it is unknown
	Before func() error // called before each read
	// Want is the body's XXH64 in hexadecimal, the checksum that the HTTP interface
	// defines; empty for none. It is called at the end. Nil expects none.
	Want  func() string
	sum   *xxhash.Digest // nil before the first read and without Want
	read  int64
	last  byte // was read and not given out
	whole bool // all has come, and it is right
	err   error
}

// Read is io.Reader's.
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

// step reads into p behind the byte that was kept and keeps the new last one.
func (b *Checked) step(p []byte) int {
	var two [2]byte
	if len(p) == 1 && b.read > 0 { // no room for a byte behind the one that was kept
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
	case err == io.EOF: //nolint:errorlint // one that is wrapped is a body cut off
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
		return fmt.Errorf("body of %d bytes, expected %d: %w", b.read, b.Size, io.ErrUnexpectedEOF)
	}
	if b.Want == nil {
		return nil
	}
	want := b.Want()
	if want == "" {
		return nil
	}
	if got := fmt.Sprintf("%016x", b.sum.Sum64()); !strings.EqualFold(got, want) {
		return fmt.Errorf("body of %d bytes has checksum %s, expected %.40q: %w", b.read, got, want, ErrChecksum)
	}
	return nil
}

// Err is what was wrong with the body, io.EOF where all of it was read and
// right, and nil where some of it was not read.
func (b *Checked) Err() error { return b.err }

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

// Checked is a body that withholds its last byte until the complete body has arrived with
// the right size and checksum, so that no reader mistakes a bad body for a complete one. The last
// byte is unknown until the body ends, so each read withholds its last byte and returns the one
// withheld before.
type Checked struct {
	Source io.Reader
	Size   int64        // in bytes; -1 if unknown
	Before func() error // called before each read; an error ends the body
	// Want returns the expected XXH64 of the body in hexadecimal, which the HTTP interface
	// defines, or "" if the client sent none. It is called at the end of the body, because HTTP
	// trailers arrive then. A nil Want skips the check.
	Want     func() string
	digest   *xxhash.Digest // nil before the first read and without Want
	received int64          // bytes read from Source
	withheld byte           // the last byte received, if received > 0 and err is nil
	complete bool           // the body has ended and is right; only withheld has not been returned
	err      error          // see Err
}

// Read implements io.Reader.
func (b *Checked) Read(p []byte) (int, error) {
	for len(p) > 0 && b.err == nil {
		if b.complete {
			p[0] = b.withheld
			b.err = io.EOF
			return 1, io.EOF
		}
		if n := b.advance(p); n > 0 {
			return n, nil
		}
	}
	return 0, b.err
}

// advance reads once from Source and withholds the last byte received. It returns the number of
// bytes in p that the reader may have, which may be 0.
func (b *Checked) advance(p []byte) int {
	var two [2]byte
	if len(p) == 1 && b.received > 0 { // no room for a byte after the withheld one
		defer func() { p[0] = two[0] }()
		return b.fill(two[:])
	}
	return b.fill(p)
}

// fill is advance for a p that has room for the withheld byte and another.
func (b *Checked) fill(p []byte) int {
	if b.digest == nil && b.Want != nil {
		b.digest = xxhash.New()
	}
	kept := int(min(b.received, 1)) // number of withheld bytes, 0 or 1
	err := b.Before()
	n := 0
	if err == nil {
		n, err = b.Source.Read(p[kept:])
	}
	if b.digest != nil {
		_, _ = b.digest.Write(p[kept : kept+n]) // never fails
	}
	b.received += int64(n)
	if kept == 1 {
		p[0] = b.withheld
	}
	n += kept
	if n > 0 {
		b.withheld = p[n-1]
	}
	switch {
	case err == io.EOF: //nolint:errorlint // a wrapped io.EOF means a truncated body
		b.err = b.verify()
		if b.err == nil && n == 0 { // an empty body
			b.err = io.EOF
		}
		b.complete = b.err == nil
	case err != nil:
		b.err = fmt.Errorf("body ends after %d bytes: %w", b.received, err)
	}
	return max(n-1, 0)
}

// verify returns an error if a body that has ended has the wrong size or checksum.
func (b *Checked) verify() error {
	if b.Size >= 0 && b.received != b.Size {
		return fmt.Errorf("body has %d bytes, expected %d: %w", b.received, b.Size, io.ErrUnexpectedEOF)
	}
	if b.Want == nil {
		return nil
	}
	want := b.Want()
	if want == "" {
		return nil
	}
	if got := fmt.Sprintf("%016x", b.digest.Sum64()); !strings.EqualFold(got, want) {
		return fmt.Errorf("body has checksum %s over %d bytes, expected %.40q: %w", got, b.received, want, ErrChecksum)
	}
	return nil
}

// Err returns io.EOF once a correct body has been read to its end, the body's fault if it has one,
// and nil otherwise.
func (b *Checked) Err() error { return b.err }

package wire

import (
	"errors"
	"io"
	"sync/atomic"
)

// ErrFull reports a body that exceeds the limit of all bodies.
var ErrFull = errors.New("too many request bodies")

// Counted is a body whose bytes count in Held as they arrive, so that a client that only
// announces a large body uses no room.
type Counted struct {
	io.Reader
	Held *atomic.Int64 // bytes of all bodies
	Most int64         // limit of Held
	read int64
}

// Read implements io.Reader. It returns ErrFull if Held exceeds Most.
func (c *Counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += int64(n)
	if c.Held.Add(int64(n)) > c.Most {
		return n, ErrFull
	}
	return n, err
}

// Release subtracts the bytes read from Held. Call it once.
func (c *Counted) Release() { c.Held.Add(-c.read) }

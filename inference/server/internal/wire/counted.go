package wire

import (
	"errors"
	"io"
	"sync/atomic"
)

// ErrFull is a body that there is no room for.
var ErrFull = errors.New("too many bodies are held")

// Counted is a body whose bytes count in Held as they come, so that a client
// that only says it has much to send takes no room from others.
type Counted struct {
	io.Reader
	Held *atomic.Int64 // bytes of all bodies
	Most int64         // of Held
	read int64
}

// Read is io.Reader's, and ErrFull where Held is beyond Most.
func (c *Counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += int64(n)
	if c.Held.Add(int64(n)) > c.Most {
		return n, ErrFull
	}
	return n, err
}

// Release takes what was read off Held, once.
func (c *Counted) Release() { c.Held.Add(-c.read) }

package wire

import (
	"errors"
	"io"
	"sync/atomic"
)

// ErrFull reports that all request bodies together exceed their limit.
var ErrFull = errors.New("too many request bodies")

// Counted is a body that adds its bytes to Held as they arrive. A client that announces a large
// body but does not send it therefore takes nothing from the limit.
type Counted struct {
	io.Reader
	Held  *atomic.Int64 // total bytes of all bodies in memory; shared
	Limit int64         // maximum of Held
	read  int64         // this body's bytes in Held
}

// Read implements io.Reader. It returns ErrFull if Held exceeds Limit.
func (c *Counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += int64(n)
	if c.Held.Add(int64(n)) > c.Limit {
		return n, ErrFull
	}
	return n, err
}

// Release takes this body's bytes out of Held. Call it once, after the last Read.
func (c *Counted) Release() { c.Held.Add(-c.read) }

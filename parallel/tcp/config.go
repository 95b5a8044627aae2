// Package tcp connects ranks that are processes, on one machine or several.
//
// A world ends with its first failure. The ranks that are left, and processes that replace others, may then open
// another one at the same address; nothing that belongs to the first can reach it (World.tickets).
//
// Rank 0 listens at an address that all ranks know. The others join there and learn each
// other's addresses. Every rank has a control connection to rank 0, which decides what has
// failed and sends its verdict to the others. Messages travel on one connection for each sender, receiver
// and channel, made when it is first used, so that channels do not block each other and the kernel's
// buffers bound the memory of messages under way.
//
// Both ends of each connection prove that they know a shared token, which is never sent, and agree
// on keys that only they know. All that follows is authenticated with AES-GCM: a world fails if anything
// is altered, dropped, repeated or moved on the way. Handshakes, headers and control messages are also
// encrypted. The data of messages is not, because encryption, as TLS does it, would slow down the steps
// of a small model. So anyone on the network can read the data, and can make the ranks fail.
package tcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"time"
)

// Config says how a rank joins its world. All ranks have the same Size, Token, Run and Numerics.
type Config struct {
	Rank   int
	Size   int
	Master string // host:port of rank 0
	Token  []byte // at least MinToken bytes that are hard to guess
	Run    string // identifies the run, so that ranks of another one are refused; at most 128 bytes
	// Numerics name the arithmetic of the ranks, so that ranks with another one are refused; at most 64 bytes.
	Numerics string

	// Listen is the host:port at which a rank other than 0 accepts messages; empty for any free port of
	// the local address of its connection to rank 0.
	Listen string

	Join    time.Duration // how long to wait for all ranks; 0 for 10 minutes
	Listens time.Duration // how long rank 0 may take to listen at Master; 0 for Join
	Silence time.Duration // time without a sign of life after which a rank has failed; 0 for 30 seconds

	// Warn gets lines about refused connections, about a master address that is not this machine's, and
	// about ranks that have not joined after patience or have left before the start; nil for none. It may
	// be called concurrently.
	Warn func(format string, args ...any)

	patience time.Duration // how long ranks may take to join before Warn gets a line; 0 for 10 seconds

	dial func(ctx context.Context, addr string) (net.Conn, error) // nil to dial TCP
}

// MinToken is the min. length of a token, in bytes.
const MinToken = 16

const (
	maxRun      = 128 // bytes of Config.Run
	maxNumerics = 64  // bytes of Config.Numerics
)

// MaxSize limits the number of ranks.
const MaxSize = 1 << 14

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Size < 1 || c.Size > MaxSize {
		bad("world size is %d, expected 1 to %d", c.Size, MaxSize)
	}
	if c.Rank < 0 || c.Rank >= c.Size {
		bad("rank is %d, expected 0 to %d", c.Rank, c.Size-1)
	}
	if len(c.Token) < MinToken {
		bad("token has %d bytes, expected at least %d", len(c.Token), MinToken)
	}
	if len(c.Run) > maxRun {
		bad("run has %d bytes, expected at most %d", len(c.Run), maxRun)
	}
	if len(c.Numerics) > maxNumerics {
		bad("numerics have %d bytes, expected at most %d", len(c.Numerics), maxNumerics)
	}
	if _, _, err := net.SplitHostPort(c.Master); err != nil {
		bad("master address is %q, expected host:port", c.Master)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil && c.Listen != "" {
		bad("listen address is %q, expected host:port", c.Listen)
	}
	if c.Join < 0 || c.Listens < 0 || c.Silence < 0 {
		bad("time to join is %v, to listen %v and silence %v, expected none below 0", c.Join, c.Listens, c.Silence)
	}
	return errors.Join(errs...)
}

// withDefaults returns a copy of c with its defaults filled in. Its Token is not the token but a key
// derived from it, for the handshakes.
func (c Config) withDefaults() Config {
	if c.Join == 0 {
		c.Join = 10 * time.Minute
	}
	if c.Silence == 0 {
		c.Silence = 30 * time.Second
	}
	if c.patience == 0 {
		c.patience = 10 * time.Second
	}
	if c.dial == nil {
		c.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if c.Warn == nil {
		c.Warn = func(string, ...any) {}
	}
	key := sha256.Sum256(append([]byte("easyrl parallel\n"), c.Token...))
	c.Token = key[:]
	return c
}

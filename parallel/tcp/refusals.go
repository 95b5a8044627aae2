package tcp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/easyrl/easyrl/internal/peer"
)

// cause is why a connection is refused.
type cause int

const (
	silent   cause = iota // without a complete handshake
	protocol              // not of this protocol
	release               // of another version of it
	stranger              // without the token
	misfit                // of a rank that does not belong here
	causes
)

func (c cause) String() string {
	return [...]string{
		"without a handshake", "of another protocol", "of another version", "without the token", "of ranks that do not belong here",
	}[c]
}

// summary is how often refusals are summed up.
const summary = 30 * time.Second

// refusals counts refused connections. The first one of each cause is a line, the others are summed up.
type refusals struct {
	warn func(format string, args ...any)

	mu     sync.Mutex
	seen   [causes]bool
	counts [causes]int // since the last line about them
	timer  *time.Timer // until the next; nil without counts
}

// add records that a connection was refused.
func (r *refusals) add(from net.Addr, err error) {
	var why refusal // a connection that breaks off is silent
	errors.As(err, &why)
	r.mu.Lock()
	first := !r.seen[why.cause]
	r.seen[why.cause] = true
	if !first {
		r.counts[why.cause]++
		if r.timer == nil {
			r.timer = time.AfterFunc(summary, r.flush)
		}
	}
	r.mu.Unlock()
	if first {
		r.warn("refuse connection from %s: %v", from, peer.Fault(err))
	}
}

// flush sums up the refusals since the last line.
func (r *refusals) flush() {
	r.mu.Lock()
	total, parts := 0, []string(nil)
	for c, n := range r.counts {
		if n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %v", n, cause(c)))
		}
	}
	r.counts = [causes]int{}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.mu.Unlock()
	if total > 0 {
		r.warn("refused %d more connections: %s", total, strings.Join(parts, ", "))
	}
}

// lobby holds connections whose handshake is not complete, oldest first. If there are too many, the
// oldest gives way, so that silent connections keep no rank out.
type lobby struct {
	mu     sync.Mutex
	guests []net.Conn
}

// errGaveWay is why the handshake of a guest ends.
var errGaveWay = errors.New("no handshake before newer connections needed its place")

func (l *lobby) enter(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.guests) == maxHandshakes {
		_ = l.guests[0].Close() // its handshake fails
		l.guests = l.guests[1:]
	}
	l.guests = append(l.guests, c)
}

// leave reports whether c was still a guest. It is none from then on.
func (l *lobby) leave(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.guests, c)
	if i >= 0 {
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	return i >= 0
}

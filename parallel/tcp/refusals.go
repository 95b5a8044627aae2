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
	noToken               // without the token
	misfit                // of a rank that does not belong here
	causes
)

func (c cause) String() string {
	return [...]string{
		silent:   "without a handshake",
		protocol: "of another protocol",
		release:  "of another version",
		noToken:  "without the token",
		misfit:   "of ranks that do not belong here",
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

// add records a refused connection.
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

// handshakes holds accepted connections whose handshake is not complete, oldest first. If there are too
// many, add closes the oldest, so that silent connections keep no rank out.
type handshakes struct {
	mu    sync.Mutex
	conns []net.Conn
}

// errGaveWay is the error of a handshake whose connection add has closed.
var errGaveWay = errors.New("no handshake before newer connections needed its place")

func (h *handshakes) add(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.conns) == maxHandshakes {
		_ = h.conns[0].Close()
		h.conns = h.conns[1:]
	}
	h.conns = append(h.conns, c)
}

// remove reports whether it has removed c. It is false if add has closed c.
func (h *handshakes) remove(c net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.conns, c)
	if i >= 0 {
		h.conns = slices.Delete(h.conns, i, i+1)
	}
	return i >= 0
}

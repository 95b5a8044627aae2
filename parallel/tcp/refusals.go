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
	silent    cause = iota // the handshake breaks off or takes too long
	protocol               // the peer speaks another protocol
	release                // the peer speaks another version of the protocol
	noToken                // the peer does not know the token
	misfit                 // the peer is not a rank that may connect here
	taken                  // another process has joined as the peer's rank, and may be about to be found dead
	numCauses              // number of causes
)

func (c cause) String() string {
	return [...]string{
		silent:   "without a handshake",
		protocol: "of another protocol",
		release:  "of another version",
		noToken:  "without the token",
		misfit:   "of ranks that do not belong here",
		taken:    "of ranks that have already joined",
	}[c]
}

// summaryInterval is the time between summaries of refusals.
const summaryInterval = 30 * time.Second

// refusals warns about refused connections: about the first of each cause at once, and about all others
// in summaries. Its methods may be called concurrently.
type refusals struct {
	warn func(format string, args ...any)

	mu     sync.Mutex
	seen   [numCauses]bool
	counts [numCauses]int // refusals for the next summary
	timer  *time.Timer    // calls flush for the next summary; nil if counts are 0
}

// add records a refused connection.
func (r *refusals) add(from net.Addr, err error) {
	var why refusal
	errors.As(err, &why) // otherwise the handshake broke off, and cause 0 is silent
	r.mu.Lock()
	first := !r.seen[why.cause]
	r.seen[why.cause] = true
	if !first {
		r.counts[why.cause]++
		if r.timer == nil {
			r.timer = time.AfterFunc(summaryInterval, r.flush)
		}
	}
	r.mu.Unlock()
	if first {
		r.warn("refuse connection from %s: %v", from, peer.Fault(err))
	}
}

// flush warns with a summary of the refusals since the last one, if any.
func (r *refusals) flush() {
	r.mu.Lock()
	total := 0
	var parts []string
	for c, n := range r.counts {
		if n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %v", n, cause(c)))
		}
	}
	r.counts = [numCauses]int{}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.mu.Unlock()
	if total > 0 {
		r.warn("refused %d more connections: %s", total, strings.Join(parts, ", "))
	}
}

// handshakes holds accepted connections whose handshake is not complete, oldest first. If there are
// already maxHandshakes, add closes the oldest, so that silent connections cannot keep a rank out.
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

// remove removes c. It returns false if c was already removed, by add, which has closed it, or by remove.
func (h *handshakes) remove(c net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.conns, c)
	if i >= 0 {
		h.conns = slices.Delete(h.conns, i, i+1)
	}
	return i >= 0
}

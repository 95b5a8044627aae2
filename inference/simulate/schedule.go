package simulate

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// errFailure is what requests fail with that are to fail.
var errFailure = errors.New("simulated failure")

// schedule is an instance's batching. It knows no clock: all times are given.
type schedule struct {
	slots   int
	at      time.Duration // up to which it has run
	grown   time.Duration // of at, in which responses grew: no prompt ran
	filling *group        // whose prompt runs, the queue's first, or nil
	fillEnd time.Duration
	queue   []*group          // that have responses which wait, first come first
	running indexed.Heap[row] // the first to end on top, of several the first that began
	started int               // responses so far
	stats   Stats
}

func newSchedule(slots int) schedule {
	return schedule{slots: slots, running: indexed.New(func(a, b row) bool {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.order, b.order)) < 0
	}, nil)}
}

// group is a request and the time that it takes.
type group struct {
	req      *inference.Request
	version  int64           // of the instance when it began, or waits
	checksum string          // likewise
	keys     []uint64        // of the responses
	lengths  []int           // of the responses, in tokens
	stopped  []bool          // responses that end before the limit
	prefill  time.Duration   // that the prompt takes
	spans    []time.Duration // that the responses take
	fails    bool            // when its first response ends

	started bool            // its prompt runs or has run
	filled  bool            // its prompt has run
	next    int             // the first response that waits
	starts  []time.Duration // of the responses before next, as schedule.grown
	ended   int             // responses
	err     error
	done    chan struct{} // closed when all responses have ended or err is set
}

// row is a response that grows.
type row struct {
	g     *group
	index int
	end   time.Duration // as schedule.grown
	order int
}

// next is when something happens unless a request comes or goes.
func (s *schedule) next() (time.Duration, bool) {
	switch {
	case s.filling != nil:
		return s.fillEnd, true
	case s.running.Len() > 0:
		return s.at + s.running.At(0).end - s.grown, true
	}
	return 0, false
}

// runTo does what happens up to now, in order.
func (s *schedule) runTo(now time.Duration) {
	for {
		at, ok := s.next()
		if !ok || at > now {
			s.move(now)
			return
		}
		s.move(at)
		if g := s.filling; g != nil {
			s.filling, g.filled = nil, true
			s.stats.Prefill += g.prefill
		} else {
			for s.running.Len() > 0 && s.running.At(0).end <= s.grown { // before a prompt may stop them
				s.end(s.running.Pop())
			}
		}
		s.admit()
	}
}

func (s *schedule) move(to time.Duration) {
	if to <= s.at {
		return
	}
	if s.filling == nil {
		s.grown += to - s.at
	}
	s.at = to
}

// add takes a request that comes now, to which the schedule has run.
func (s *schedule) add(g *group) {
	s.queue = append(s.queue, g)
	s.admit()
}

// admit starts responses, and the prompts before them, while there are slots.
func (s *schedule) admit() {
	for s.filling == nil && s.running.Len() < s.slots && len(s.queue) > 0 {
		g := s.queue[0]
		if !g.started {
			g.started = true
			s.stats.PromptTokens += int64(len(g.req.PromptIDs))
			g.filled = g.prefill == 0
		}
		if !g.filled {
			s.filling, s.fillEnd = g, s.at+g.prefill
			return
		}
		s.running.Push(row{g, g.next, s.grown + g.spans[g.next], s.started})
		g.starts = append(g.starts, s.grown)
		s.started++
		g.next++
		if g.next == len(g.spans) {
			s.queue[0] = nil
			s.queue = s.queue[1:]
		}
	}
}

// end takes a response that has all its tokens.
func (s *schedule) end(r row) {
	s.stats.Tokens += int64(r.g.lengths[r.index])
	s.stats.Busy += r.g.spans[r.index]
	r.g.ended++
	switch {
	case r.g.fails:
		s.drop(func(g *group) error {
			if g == r.g {
				return errFailure
			}
			return nil
		})
		if r.g.err == nil { // it was the only response
			r.g.err = errFailure
			close(r.g.done)
		}
	case r.g.ended == len(r.g.spans):
		close(r.g.done)
	}
}

// drop ends the requests for which fault is an error, and starts what has room
// now.
func (s *schedule) drop(fault func(*group) error) {
	ends := func(g *group) bool {
		if g.err != nil {
			return true
		}
		if g.err = fault(g); g.err != nil {
			close(g.done)
		}
		return g.err != nil
	}
	s.queue = slices.DeleteFunc(s.queue, ends)
	if s.filling != nil && s.filling.err != nil {
		s.filling = nil
	}
	s.running.DeleteFunc(func(r row) bool { return ends(r.g) })
	s.admit()
}

// tokens is how many of a response's there are now.
func (s *schedule) tokens(g *group, index int) int {
	if index >= g.next {
		return 0
	}
	share := float64(s.grown-g.starts[index]) / float64(max(g.spans[index], 1))
	return min(int(share*float64(g.lengths[index])), g.lengths[index])
}

package simulate

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// errFailure is the error of requests chosen to fail by Config.Failures.
var errFailure = errors.New("simulated failure")

// schedule simulates an instance's batching. It has no clock: callers pass all times. It has no
// lock either; Instance.mu guards it and its groups.
//
// Two clocks run. now is the instance's time. grown is the time for which responses have grown: it
// stops while a prompt runs, because no response grows then. Starts and ends of responses are times
// on grown, so that a prompt delays all running responses without changing them.
type schedule struct {
	slots      int
	now        time.Duration          // as of the last runTo
	grown      time.Duration          // as of the last runTo
	prefilling *group                 // the group whose prompt runs, which is queue[0]; nil if none runs
	prefillEnd time.Duration          // when the prompt of prefilling ends, on now
	queue      []*group               // requests with waiting responses, in order of arrival
	running    indexed.Heap[response] // earliest end on top, ties by start
	started    int                    // number of responses started so far
	stats      Stats
}

func newSchedule(slots int) schedule {
	return schedule{slots: slots, running: indexed.New(func(a, b response) bool {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.order, b.order)) < 0
	}, nil)}
}

// group is a request and the timing of its responses.
type group struct {
	req      *inference.Request
	version  int64           // version of the weights that answer; final once the prompt starts
	checksum string          // checksum of those weights; final once the prompt starts
	seeds    []uint64        // per response: determines its length and tokens
	lengths  []int           // per response: number of tokens
	stopped  []bool          // per response: it ends by itself, not at the limit
	prefill  time.Duration   // duration of the prompt
	spans    []time.Duration // per response: duration, on schedule.grown
	fails    bool            // the request fails when its first response ends

	started   bool            // its prompt is running or has run
	prefilled bool            // its prompt has run
	next      int             // index of the first waiting response
	starts    []time.Duration // per response before next: start, on schedule.grown
	ended     int             // number of ended responses
	err       error           // why the request ended early; may be read after done is closed
	done      chan struct{}   // closed when all responses have ended or err is set
	endings   chan int        // gets the index of each response that ends before the last; nil without Request.Ended
}

// response is a running response.
type response struct {
	g     *group
	index int
	end   time.Duration // on schedule.grown
	order int           // number of responses started before it
}

// nextEvent returns the time at which the next prompt or response ends if no request arrives or
// leaves before. It reports false if none runs.
func (s *schedule) nextEvent() (time.Duration, bool) {
	switch {
	case s.prefilling != nil:
		return s.prefillEnd, true
	case s.running.Len() > 0:
		return s.now + s.running.At(0).end - s.grown, true
	}
	return 0, false
}

// runTo processes all events up to now, in order.
func (s *schedule) runTo(now time.Duration) {
	for {
		event, ok := s.nextEvent()
		if !ok || event > now {
			s.advance(now)
			return
		}
		s.advance(event)
		if g := s.prefilling; g != nil {
			s.prefilling, g.prefilled = nil, true
			s.stats.Prefill += g.prefill
		} else {
			// End all that are due before admit, which may start a prompt and so stop grown.
			for s.running.Len() > 0 && s.running.At(0).end <= s.grown {
				s.end(s.running.Pop())
			}
		}
		s.admit()
	}
}

// advance moves both clocks to a time before which no event is due.
func (s *schedule) advance(to time.Duration) {
	if to <= s.now {
		return
	}
	if s.prefilling == nil {
		s.grown += to - s.now
	}
	s.now = to
}

// add adds a request that arrives now. The schedule must have run to now.
func (s *schedule) add(g *group) {
	s.queue = append(s.queue, g)
	s.admit()
}

// admit starts waiting responses in order while slots are free. If the first request's prompt has
// not run, admit starts the prompt instead and returns.
func (s *schedule) admit() {
	for s.prefilling == nil && s.running.Len() < s.slots && len(s.queue) > 0 {
		g := s.queue[0]
		if !g.started {
			g.started = true
			s.stats.PromptTokens += int64(len(g.req.PromptIDs))
			g.prefilled = g.prefill == 0
		}
		if !g.prefilled {
			s.prefilling, s.prefillEnd = g, s.now+g.prefill
			return
		}
		s.running.Push(response{g: g, index: g.next, end: s.grown + g.spans[g.next], order: s.started})
		g.starts = append(g.starts, s.grown)
		s.started++
		g.next++
		if g.next == len(g.spans) {
			s.queue[0] = nil
			s.queue = s.queue[1:]
		}
	}
}

// end counts a response that has all its tokens. It ends the request if this was the last
// response or the request fails.
func (s *schedule) end(r response) {
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
		if r.g.err == nil { // drop did not find the group, because no other response of it runs or waits
			r.g.err = errFailure
			close(r.g.done)
		}
	case r.g.ended == len(r.g.spans):
		close(r.g.done)
	case r.g.endings != nil:
		r.g.endings <- r.index // has room for all responses
	}
}

// drop ends the requests for which fault returns an error, with that error, and starts
// waiting responses in the freed slots.
func (s *schedule) drop(fault func(*group) error) {
	dropped := func(g *group) bool {
		if g.err != nil {
			return true
		}
		if g.err = fault(g); g.err != nil {
			close(g.done)
		}
		return g.err != nil
	}
	s.queue = slices.DeleteFunc(s.queue, dropped)
	if s.prefilling != nil && s.prefilling.err != nil {
		s.prefilling = nil
	}
	s.running.DeleteFunc(func(r response) bool {
		if !dropped(r.g) {
			return false
		}
		s.stats.Tokens += int64(s.tokens(r.g, r.index))
		return true
	})
	s.admit()
}

// tokens returns the current number of tokens of a response.
func (s *schedule) tokens(g *group, index int) int {
	if index >= g.next {
		return 0
	}
	share := float64(s.grown-g.starts[index]) / float64(max(g.spans[index], 1))
	return min(int(share*float64(g.lengths[index])), g.lengths[index])
}

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// job is a request of the naive simulation.
type job struct {
	at      int // arrival time
	prefill int
	spans   []int

	filled int   // time of prefill done
	left   []int // time left of each started response; 0 means ended
	ends   []int // end times
}

// naive simulates jobs, given in arrival order, nanosecond by nanosecond as
// described in the package doc, and sets their end times.
func naive(slots int, jobs []*job) {
	waits := func(now int) *job { // the first request with waiting responses
		for _, j := range jobs {
			if j.at <= now && len(j.left) < len(j.spans) {
				return j
			}
		}
		return nil
	}
	running := func() (n int) {
		for _, j := range jobs {
			for _, left := range j.left {
				n += min(left, 1)
			}
		}
		return n
	}
	var fills *job
	for now, ended := 0, 0; ended < len(jobs); now++ {
		for fills == nil && running() < slots {
			j := waits(now)
			if j == nil {
				break
			}
			if j.filled < j.prefill {
				fills = j
				break
			}
			j.left = append(j.left, j.spans[len(j.left)])
		}
		// Simulate the nanosecond that starts at now.
		if fills != nil {
			fills.filled++
			if fills.filled == fills.prefill {
				fills = nil
			}
			continue
		}
		for _, j := range jobs {
			for i := range j.left {
				if j.left[i] > 0 {
					j.left[i]--
					if j.left[i] == 0 {
						j.ends[i] = now + 1
						if !slices.Contains(j.ends, 0) {
							ended++
						}
					}
				}
			}
		}
	}
}

// The schedule matches a naive simulation that visits every nanosecond, however
// late it is called.
func TestScheduleMatchesNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		slots := 1 + rng.IntN(6)
		var jobs []*job
		at := 0
		for range 1 + rng.IntN(12) {
			at += rng.IntN(30)
			j := &job{at: at, prefill: rng.IntN(2) * rng.IntN(15), spans: make([]int, 1+rng.IntN(5))}
			j.ends = make([]int, len(j.spans))
			for i := range j.spans {
				j.spans[i] = 1 + rng.IntN(40)
			}
			jobs = append(jobs, j)
		}
		naive(slots, jobs)

		// One group per response, because the schedule reports only the end of
		// whole requests.
		s := newSchedule(slots)
		groups := make([]*group, len(jobs))
		var busy time.Duration
		for k, j := range jobs {
			g := &group{req: &inference.Request{PromptIDs: []int32{1}}, prefill: time.Duration(j.prefill),
				lengths: j.spans, done: make(chan struct{})}
			for _, v := range j.spans {
				g.spans = append(g.spans, time.Duration(v))
				busy += time.Duration(v)
			}
			groups[k] = g
		}
		got := make([]int, len(jobs))
		note := func() {
			for k, g := range groups {
				select {
				case <-g.done:
					if got[k] == 0 {
						got[k] = int(s.now)
					}
				default:
				}
			}
		}
		step := func(to time.Duration) { // one event at a time, to read the times
			for {
				next, ok := s.nextEvent()
				if !ok || next > to {
					break
				}
				s.runTo(next)
				note()
			}
			s.runTo(to)
		}
		for k, j := range jobs {
			step(time.Duration(j.at))
			s.add(groups[k])
		}
		step(1 << 40)
		for k, j := range jobs {
			require.Equal(t, slices.Max(j.ends), got[k], "seed %d request %d of %s", seed, k, dump(slots, jobs))
		}
		require.Equal(t, busy, s.stats.Busy)

		// Running in one go yields the same counters and end.
		late := newSchedule(slots)
		for k, j := range jobs {
			late.runTo(time.Duration(j.at))
			late.add(&group{req: groups[k].req, prefill: groups[k].prefill, lengths: groups[k].lengths,
				spans: groups[k].spans, done: make(chan struct{})})
		}
		late.runTo(1 << 40)
		require.Equal(t, s.stats, late.stats)
		require.Equal(t, s.grown, late.grown)
	}
}

func dump(slots int, jobs []*job) string {
	s := fmt.Sprint("slots ", slots)
	for _, j := range jobs {
		s += fmt.Sprintf(" {at %d prefill %d spans %v}", j.at, j.prefill, j.spans)
	}
	return s
}

package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Durations are one micro-batch's measured times at one stage, in seconds. They are
// finite and at least 0.
type Durations struct {
	Forward float64
	// Loss is the time between the end of the last stage's forward pass and the arrival of the
	// gradient from the trainer. It is 0 at other stages.
	Loss     float64
	Backward float64
}

// Span is one operation of a stage.
type Span struct {
	Stage int
	Micro int     // the micro-batch's index
	Op    Op      // Forward or Backward
	Start float64 // in seconds, on the clock of Replay's arrivals
	End   float64 // likewise
}

// Replay runs the schedule of Stage on every stage with durations[micro][stage]. Micro-batch m
// becomes available to stage 0 at arrivals[m]; those that arrive at the same time run in order
// of their index. An activation or gradient takes send seconds from one stage to its neighbour. Stages
// compute while messages are under way, and several messages may be under way. Replay panics if a time
// is not finite, or is negative and not an arrival.
//
// At each point in time, all ends and arrivals of that time come first, and then the stages decide in
// order, from 0. Replay returns all operations in order of their start; operations that start at the
// same time are in the order of the decisions.
func Replay(durations [][]Durations, arrivals []float64, send float64) []Span {
	if len(durations) != len(arrivals) {
		panic(fmt.Sprintf("pipeline: %d arrivals of %d micro-batches", len(arrivals), len(durations)))
	}
	if len(durations) == 0 {
		return nil
	}
	check("send", send)
	r := newReplay(durations, arrivals, send)
	for {
		now := r.next()
		if math.IsInf(now, 1) {
			return r.spans
		}
		for i := range r.stations {
			r.stations[i].advance(now)
		}
		for i := range r.stations {
			r.decide(i, now)
		}
	}
}

// replay is the state of Replay.
type replay struct {
	durations [][]Durations
	send      float64 // seconds that a message takes
	order     []int   // indices of micro-batches in order of arrival
	stations  []station
	spans     []Span
}

// station is a stage and the messages on their way to it.
type station struct {
	*Stage
	inputs    []float64 // times at which inputs will arrive, ascending
	gradients []float64 // times at which gradients will arrive, ascending
	end       float64   // time at which the running operation ends; infinite if none runs
	forward   int       // number of micro-batches whose forward pass has begun
	backward  int       // number of micro-batches whose backward pass has begun
}

// newReplay checks the arguments of Replay and places all arrivals before the first stage.
func newReplay(durations [][]Durations, arrivals []float64, send float64) *replay {
	stages := len(durations[0])
	r := &replay{durations: durations, send: send, order: make([]int, len(arrivals)), stations: make([]station, stages)}
	for m, row := range durations {
		if len(row) != stages {
			panic(fmt.Sprintf("pipeline: micro-batch %d has durations of %d stages, expected %d", m, len(row), stages))
		}
		for _, d := range row {
			check("forward pass", d.Forward)
			check("loss", d.Loss)
			check("backward pass", d.Backward)
		}
		check("arrival", math.Abs(arrivals[m]))
		r.order[m] = m
	}
	slices.SortStableFunc(r.order, func(a, b int) int { return cmp.Compare(arrivals[a], arrivals[b]) })
	for i := range r.stations {
		r.stations[i] = station{Stage: NewStage(i, stages), end: math.Inf(1)}
	}
	if stages > 0 {
		r.stations[0].inputs = slices.Sorted(slices.Values(arrivals))
	}
	return r
}

// check panics unless a time is finite and at least 0.
func check(name string, seconds float64) {
	if !(seconds >= 0 && seconds <= math.MaxFloat64) { // true for NaN
		panic(fmt.Sprintf("pipeline: %s of %v seconds, expected at least 0", name, seconds))
	}
}

// next returns the earliest time at which an operation ends or a message arrives, or infinity if no
// operation runs and no message is under way.
func (r *replay) next() float64 {
	now := math.Inf(1)
	for _, s := range r.stations {
		now = min(now, s.end)
		if len(s.inputs) > 0 {
			now = min(now, s.inputs[0])
		}
		if len(s.gradients) > 0 {
			now = min(now, s.gradients[0])
		}
	}
	return now
}

// advance notes the end and arrivals up to now.
func (s *station) advance(now float64) {
	if s.end <= now {
		s.end = math.Inf(1)
	}
	for ; len(s.inputs) > 0 && s.inputs[0] <= now; s.inputs = s.inputs[1:] {
		s.Input()
	}
	for ; len(s.gradients) > 0 && s.gradients[0] <= now; s.gradients = s.gradients[1:] {
		s.Gradient()
	}
}

// decide begins the next operation of a stage that runs none, and schedules the arrival of its result.
func (r *replay) decide(stage int, now float64) {
	s := &r.stations[stage]
	if !math.IsInf(s.end, 1) {
		return
	}
	op, micro := s.Next(), 0
	switch op {
	case Wait:
		return
	case Forward:
		micro = r.order[s.forward]
		s.forward++
	case Backward:
		micro = r.order[s.backward]
		s.backward++
	}
	d, last := r.durations[micro][stage], len(r.stations)-1
	if op == Forward {
		s.end = now + d.Forward
	} else {
		s.end = now + d.Backward
	}
	switch {
	case op == Forward && stage == last:
		s.gradients = append(s.gradients, s.end+d.Loss)
	case op == Forward:
		r.stations[stage+1].inputs = append(r.stations[stage+1].inputs, s.end+r.send)
	case stage > 0:
		r.stations[stage-1].gradients = append(r.stations[stage-1].gradients, s.end+r.send)
	}
	r.spans = append(r.spans, Span{Stage: stage, Micro: micro, Op: op, Start: now, End: s.end})
}

// Idle returns the share of time, 0 to 1, in which stages wait between the first start and the last end
// of spans, averaged over all stages. It is 0 if no time lies between them.
func Idle(spans []Span, stages int) float64 {
	if len(spans) == 0 {
		return 0
	}
	first := spans[0].Start
	last := spans[0].End
	busy := 0.0
	for _, s := range spans {
		first = min(first, s.Start)
		last = max(last, s.End)
		busy += s.End - s.Start
	}
	all := float64(float64(stages) * (last - first)) // the conversion forbids fusing with the subtraction below
	if all == 0 {
		return 0
	}
	return max(0, all-busy) / all // rounding may make busy exceed all
}

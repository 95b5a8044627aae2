// Package pipeline decides what a stage of a pipeline does next: a state machine without
// goroutines, locks, clocks or I/O.
//
// A pipeline cuts a model's layers into stages, one on each rank. A micro-batch's forward
// pass runs through them from the first, which embeds, to the last, which has the loss; its
// backward pass runs the other way. The schedule is 1F1B, also called PipeDream-Flush (Narayanan and
// others 2021), for micro-batches that arrive over time: stages drain when no micro-batch is left, and
// fill again when the next one arrives.
//
// Replay, Bubble, HandOn and HandOnBubble predict how long ranks wait for each other.
package pipeline

import "fmt"

// Op is what a stage does next.
type Op uint8

// The operations. Forward and Backward each pass one micro-batch through the stage's layers.
const (
	Wait Op = iota
	Forward
	Backward
)

// Stage decides what one stage of a pipeline does next. It runs a backward pass if a gradient has
// arrived. Otherwise it runs a forward pass if an input has arrived and fewer than stages-stage
// micro-batches are in flight. Otherwise it waits. Forward and backward passes each run in the order in
// which micro-batches arrive.
//
// A micro-batch is in flight, and the stage keeps its activations, from the start of its
// forward pass to the start of its backward pass. The limit is the smallest that keeps a stage busy
// until the first gradient returns, if all passes take the same time and messages take none. It also
// bounds the activations that a stage keeps, however many inputs wait. Only one goroutine may use a Stage.
type Stage struct {
	limit     int // max. micro-batches in flight
	inputs    int // micro-batches that have arrived and whose forward pass has not begun
	waiting   int // micro-batches in flight whose gradient has not arrived
	gradients int // micro-batches in flight whose gradient has arrived
}

// NewStage returns the schedule of a stage, 0 to stages-1; it panics for another. Stage 0 embeds, stage
// stages-1 has the loss.
func NewStage(stage, stages int) *Stage {
	if stage < 0 || stage >= stages {
		panic(fmt.Sprintf("pipeline: stage is %d, expected 0 to %d", stage, stages-1))
	}
	return &Stage{limit: stages - stage}
}

// Input notes that the input of the next micro-batch's forward pass has arrived. Any number
// may arrive before the stage takes them.
func (s *Stage) Input() { s.inputs++ }

// Gradient notes that the gradient of the oldest waiting micro-batch in flight has arrived. It panics if
// none waits.
func (s *Stage) Gradient() {
	if s.waiting == 0 {
		panic("pipeline: gradient arrives, but no micro-batch in flight waits for one")
	}
	s.waiting--
	s.gradients++
}

// Next begins the operation that it returns, on the oldest micro-batch that is ready for it. The caller
// calls Next again when that operation has ended or, after Wait, when an input or gradient has arrived.
func (s *Stage) Next() Op {
	switch {
	case s.gradients > 0:
		s.gradients--
		return Backward
	case s.inputs > 0 && s.InFlight() < s.limit:
		s.inputs--
		s.waiting++
		return Forward
	}
	return Wait
}

// InFlight returns the number of micro-batches whose forward pass has begun and whose
// backward pass has not.
func (s *Stage) InFlight() int { return s.waiting + s.gradients }

// Bubble returns the share of time, 0 to 1, in which stages wait if all stages and micro-batches are
// equal, all micro-batches arrive at the start, and messages and the loss take no time. Both arguments
// are at least 1. The ratio of forward to backward time does not matter.
func Bubble(stages, micros int) float64 {
	return float64(stages-1) / float64(micros+stages-1)
}

// Package pipeline decides what a stage of a pipeline does next: a state machine without
// goroutines, locks, clocks or I/O.
//
// A pipeline cuts a model's layers into stages, one on each rank. A micro-batch's forward
// pass runs through them from the first, which embeds, to the last, which has the loss; its
// backward pass runs the other way. The schedule is PipeDream-Flush or 1F1B (Narayanan and
// others 2021), of micro-batches that stream in: when a queue runs dry, stages drain, and
// they fill again with the next micro-batch.
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

// Stage decides what one stage of a pipeline does next. It runs a backward pass if the
// gradient is there, else a forward pass if fewer than stages-stage micro-batches are in
// flight, else it waits. Forward and backward passes each run in the order in which
// micro-batches arrive.
//
// A micro-batch is in flight, and the stage keeps its activations, from the start of its
// forward pass to that of its backward pass. The limit lets a stage work until the first
// gradient returns, if all passes take the same time and messages none. A stage never holds
// more activations, even if micro-batches queue before it. Only one goroutine may use a Stage.
type Stage struct {
	limit     int // of micro-batches in flight
	inputs    int // arrived, forward pass not begun
	waiting   int // in flight, without gradient
	gradients int // in flight, with gradient
}

// NewStage returns the schedule of a stage, 0 to stages-1. Stage 0 embeds, stage stages-1 has
// the loss.
func NewStage(stage, stages int) *Stage {
	if stage < 0 || stage >= stages {
		panic(fmt.Sprintf("pipeline: stage is %d, expected 0 to %d", stage, stages-1))
	}
	return &Stage{limit: stages - stage}
}

// Input notes that the input of the next micro-batch's forward pass has arrived. Any number
// may arrive before the stage takes them.
func (s *Stage) Input() { s.inputs++ }

// Gradient notes that a gradient has arrived: that of the oldest micro-batch in flight that
// has none yet. It panics if no micro-batch in flight lacks one.
func (s *Stage) Gradient() {
	if s.waiting == 0 {
		panic("pipeline: gradient arrives, but no micro-batch in flight waits for one")
	}
	s.waiting--
	s.gradients++
}

// Next begins the operation that it returns, on the oldest micro-batch that has not begun it.
// The caller calls it when an operation ends, and, after Wait, when something arrives.
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

// Bubble returns the share of time, 0 to 1, that a pipeline of equal stages waits with equal
// micro-batches, all there from the start, and with messages and a loss that take no time.
// Both numbers are at least 1. The ratio of forward to backward passes does not matter.
func Bubble(stages, micros int) float64 {
	return float64(stages-1) / float64(micros+stages-1)
}

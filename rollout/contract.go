package rollout

import "time"

// Batch is the trainer's request to sample a group for each of Prompts with one version of the weights. A
// repeated request gives the same responses, even if Only restricts it.
type Batch struct {
	Number  int   // from 1; package trainer/schedule says which step trains it
	Version int64 // version of the weights, from 1
	Prompts []Prompt
	Only    []int // indices of the prompts to sample; nil for all
}

// Stream delivers the groups of a batch while they are sampled.
type Stream interface {
	// Groups returns a channel that delivers each finished group once and closes after the
	// last one.
	Groups() <-chan Group
	// Wait waits until all work on the batch has ended. It returns the error that closed
	// Groups early, or nil. Call it after Groups is closed or the batch's context is cancelled.
	Wait() (Stats, error)
}

// Stats summarizes how a batch was sampled.
type Stats struct {
	Busy          time.Duration // time during which instances had requests, summed over instances
	Instances     int           // number of instances that served
	Retries       int64         // number of retried requests
	Failed        int           // number of prompts for which no group was delivered
	RewardRetries int64         // number of retried reward calls
}

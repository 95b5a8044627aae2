package rollout

import "time"

// Batch is the trainer's request for one step: a group for each prompt, all sampled with
// one version of the weights. A repeated request gives the same responses, with Only too.
type Batch struct {
	Step    int   // from 1
	Version int64 // of the weights, from 1
	Prompts []Prompt
	Only    []int // indices of the prompts to sample; nil for all
}

// Stream delivers the groups of a batch while they are sampled.
type Stream interface {
	// Groups returns a channel that delivers each finished group once and closes after the
	// last one.
	Groups() <-chan Group
	// Wait returns when nothing of the batch is running, with the error that closed Groups
	// early. Call it after Groups is closed or the batch's context is cancelled.
	Wait() (Stats, error)
}

// Stats summarizes how a batch was sampled.
type Stats struct {
	Busy      time.Duration // time with work, summed over instances
	Instances int           // that served
	Retries   int64         // requests retried
	Failed    int           // prompts without a group, each reported
	// RewardRetries counts retried reward calls.
	RewardRetries int64
}

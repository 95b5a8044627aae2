package rollout

import "time"

// Orders in which a step's groups reach the trainer.
const (
	Arrival     = "arrival" // as they finish
	PromptOrder = "prompt"  // in the order of the batch's prompts
)

// Batch is what the trainer asks of the producer in one step: a group for each
// prompt, sampled with one version of the weights.
type Batch struct {
	Step    int   // from 1
	Version int64 // of the weights, from 1
	Prompts []Prompt
}

// Stream delivers the groups of a batch while they are sampled.
type Stream interface {
	// Groups delivers each finished group once and is closed after the last one.
	Groups() <-chan Group
	// Wait returns once nothing of the batch runs any more, with the error that
	// closed Groups early. Call it after Groups is closed or the batch's context
	// is cancelled.
	Wait() (Stats, error)
}

// Stats says how a batch was sampled.
type Stats struct {
	Busy      time.Duration // time with work, summed over instances
	Instances int           // that serve
	Retries   int64         // requests tried again
	Hedges    int64         // requests also given to a second instance
	Failed    int           // prompts without a group, each reported
	// Replaced are the scored groups that dynamic sampling replaced.
	Replaced []Group
	// RewardRetries counts scores asked for again.
	RewardRetries int64
}

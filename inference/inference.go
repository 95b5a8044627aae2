// Package inference defines the contract between inference instances and their
// callers: requests, responses, weights and errors.
package inference

import (
	"context"
	"io"

	"github.com/easyrl/easyrl/rollout"
)

// Sampling sets how responses are drawn.
type Sampling struct {
	Temperature float32 // divides the logits; 0 is greedy
	TopP        float32 // keeps the likeliest tokens whose probabilities sum to TopP; 1 keeps all
	TopK        int     // keeps the TopK likeliest tokens; 0 keeps all
	MinP        float32 // drops tokens less likely than MinP times the likeliest; 0 keeps all
	MaxTokens   int     // maximum number of response tokens
	// A response ends when its text contains one of the strings in Stop, or with one of the tokens
	// in StopIDs. The string or token stays in the response.
	Stop    []string
	StopIDs []int32
}

// Request asks an instance for N responses to one prompt.
type Request struct {
	PromptIDs []int32
	N         int
	// Seed determines the random draws, together with the index of a response and the position of a
	// token. Any instance with the same weights samples the same tokens.
	Seed uint64
	// FirstIndex is the index of the first response. It is above 0 if other requests ask for the
	// earlier ones.
	FirstIndex int
	Sampling   Sampling
	// Version is the version of the weights that the instance must hold; 0 accepts any.
	Version int64
	// PromptLogprobs asks for Completion.PromptLogprobs. An instance that cannot provide what this
	// and the next two fields ask for refuses the request with ErrInvalid.
	PromptLogprobs bool
	PromptTop      int // number of tokens in Completion.PromptTop at each position; needs PromptLogprobs
	TopLogprobs    int // number of tokens in Completion.Top at each position
	// Ended, if set, receives a response that is complete while other responses of the request
	// are still being sampled. It is a hint: an instance may never call it. Calls may come from
	// several goroutines, repeat a response, and bring different tokens after a retry on another
	// instance. They may even follow Generate's return. Only what Generate returns counts. Ended
	// must not block.
	Ended func(index int, c Completion)
}

// Completion is one response of an instance.
type Completion struct {
	IDs      []int32
	Logprobs []float32 // one per token, under the distribution that was sampled
	Text     string    // empty if the instance has no tokenizer
	Finish   rollout.Finish
	Version  int64  // version of the weights
	Checksum string // identifies the values of the weights; empty if the instance does not report it
	// PromptLogprobs holds the log-probability of each prompt token given the tokens before
	// it. The first is 0.
	PromptLogprobs []float32
	// PromptTop holds the most likely tokens at each position of the prompt, in descending
	// order. The first is nil.
	PromptTop [][]TokenLogprob
	// Top holds the most likely tokens at each position, in descending order.
	Top [][]TokenLogprob
	// Reject reports to the fleet that Logprobs are not those of the weights; cause says why. A
	// fleet sets it if Logprobs must be bitwise equal to the caller's. Otherwise it is nil.
	Reject func(cause error)
}

// Weights is one version of the policy, ready to publish.
type Weights interface {
	Version() int64
	// Checksum identifies the values; equal weights have equal checksums.
	Checksum() string
	// WriteSafetensors streams the weights as a safetensors file.
	WriteSafetensors(w io.Writer) error
}

// Instance is one inference instance. Its methods may be called concurrently.
type Instance interface {
	ID() string
	// Capacity returns the number of responses that the instance samples at once.
	Capacity() int
	// Generate returns req.N completions in order. If ctx ends first, it returns early with
	// ctx's error.
	Generate(ctx context.Context, req Request) ([]Completion, error)
	// Publish makes the instance serve w. When it returns, the instance holds nothing computed
	// under older weights. It returns the checksum of the weights that the instance serves.
	Publish(ctx context.Context, w Weights) (checksum string, err error)
	Close() error
}

// Hosted is an Instance outside this process, which computes on its own cores.
type Hosted interface {
	// Cores returns the number of cores that the instance computes with, 0 if unknown.
	Cores() int
}

// Exact is an Instance outside this process whose log-probabilities may be bitwise equal to the
// trainer's.
type Exact interface {
	// Exact reports whether they are.
	Exact() bool
}

// Prober is an Instance that can be probed. A fleet probes an instance that is DEAD or
// whose publish failed, and publishes the weights to it when a probe succeeds. Instances
// without Probe wait for the next publish.
type Prober interface {
	Probe(ctx context.Context) error
}

// Pulser is a Prober that shows whether it makes progress. A fleet asks it when an answer is late.
type Pulser interface {
	// Pulse returns a string that changes with each token that the instance processes, for any
	// caller. The string is empty if the instance responds but does not report its progress.
	// Pulse returns early if ctx ends.
	Pulse(ctx context.Context) (string, error)
}

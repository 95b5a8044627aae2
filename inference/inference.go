// Package inference is the contract between inference instances and their
// callers: requests, responses, weight versions and clients.
package inference

import (
	"context"
	"io"

	"github.com/easyrl/easyrl/rollout"
)

// Sampling sets how responses are drawn.
type Sampling struct {
	Temperature float32  // 0 is greedy
	TopP        float32  // 1 keeps all
	TopK        int      // 0 keeps all
	MinP        float32  // 0 keeps all
	MaxTokens   int      // maximum number of response tokens
	Stop        []string // a response ends when its text first contains one of these; the string is kept
	StopIDs     []int32  // a response ends with one of these tokens; the token is kept
}

// Request asks an instance for N responses to one prompt.
type Request struct {
	PromptIDs []int32
	N         int
	// Seed, with a response's index and position, determines its random draws. Any instance
	// with the same weights samples the same tokens.
	Seed uint64
	// FirstIndex is the index of the first response, if another request asks for the
	// earlier ones.
	FirstIndex int
	Sampling   Sampling
	// Version is the version that the instance must hold; 0 accepts any.
	Version int64
	// PromptLogprobs asks for Completion.PromptLogprobs. PromptTop and TopLogprobs are the
	// numbers of entries of Completion.PromptTop, which needs PromptLogprobs, and of
	// Completion.Top at each position. An instance that cannot provide them refuses the
	// request with ErrInvalid.
	PromptLogprobs bool
	PromptTop      int
	TopLogprobs    int
	// Ended, if set, receives responses that are final while others of the request are still
	// being sampled. It is a hint: an instance may never call it. Calls may come from several
	// goroutines, repeat a response, bring other tokens from another instance after a fault,
	// or follow Generate's return. Only what Generate returns counts. Ended must not block.
	Ended func(index int, c Completion)
}

// Completion is one response of an instance.
type Completion struct {
	IDs      []int32
	Logprobs []float32
	Text     string // empty if the instance has no tokenizer
	Finish   rollout.Finish
	Version  int64
	// Checksum identifies the weights; empty if the instance does not report it.
	Checksum string
	// PromptLogprobs holds the log-probability of each prompt token given the tokens before
	// it. The first is 0.
	PromptLogprobs []float32
	// PromptTop holds the most likely tokens at each position of the prompt, in descending
	// order. The first is nil.
	PromptTop [][]TokenLogprob
	// Top holds the most likely tokens at each position, in descending order.
	Top [][]TokenLogprob
	// Reject reports that Logprobs are not those of the weights, because of cause. A fleet
	// sets it if Logprobs must equal the caller's to the bit.
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
	// Publish returns when the instance serves w and holds nothing computed under older
	// weights. It returns the checksum of the weights now served.
	Publish(ctx context.Context, w Weights) (checksum string, err error)
	Close() error
}

// Hosted is an Instance on cores other than this process's.
type Hosted interface {
	// Cores returns the number of cores that the instance computes with, 0 if unknown.
	Cores() int
}

// Exact is an Instance outside this process that may compute the trainer's bits.
type Exact interface {
	// Exact reports whether its log-probabilities equal the trainer's to the bit.
	Exact() bool
}

// Prober is an Instance that can be probed. A fleet probes an instance that is DEAD or
// whose publish failed, and publishes the weights to it when a probe succeeds. Instances
// without Probe wait for the next publish.
type Prober interface {
	Probe(ctx context.Context) error
}

// Pulser is a Prober that shows whether it works. A fleet asks it when an answer is late.
type Pulser interface {
	// Pulse returns a text that changes with each token that the instance processes, for any
	// caller. It is empty if the instance answers but does not report its work. Pulse
	// returns early if ctx ends.
	Pulse(ctx context.Context) (string, error)
}

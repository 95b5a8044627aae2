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
	MaxTokens   int      // response tokens at most
	Stop        []string // a response ends where its text first contains one of these, which is kept
	StopIDs     []int32  // a response ends with one of these tokens, which is kept
}

// Request asks an instance for N responses to one prompt.
type Request struct {
	PromptIDs []int32
	N         int
	// Seed, with a response's index and position, determines its randomness: any
	// instance with the same weights gives the same tokens.
	Seed uint64
	// FirstIndex is the index of the first response, if another request asks for
	// those before it.
	FirstIndex int
	Sampling   Sampling
	// Version the instance must hold; 0 takes what it has.
	Version int64
	// PromptLogprobs asks for Completion.PromptLogprobs, and TopLogprobs is the
	// number of entries of Completion.Top at each position. An instance without
	// them refuses the request with ErrInvalid.
	PromptLogprobs bool
	TopLogprobs    int
}

// Completion is one response of an instance.
type Completion struct {
	IDs      []int32
	Logprobs []float32
	Text     string // empty if the instance has no tokenizer
	Finish   rollout.Finish
	Version  int64
	// Checksum is that of the weights; empty if the instance does not report it.
	Checksum string
	// PromptLogprobs are those of the prompt's tokens, each given the tokens
	// before it. The first is 0.
	PromptLogprobs []float32
	// Top are the likeliest tokens at each position, in descending order.
	Top [][]TokenLogprob
}

// Weights are one version of the policy, ready to be published.
type Weights interface {
	Version() int64
	// Checksum identifies the values; equal weights have equal checksums.
	Checksum() string
	// WriteSafetensors streams them as a safetensors file.
	WriteSafetensors(w io.Writer) error
}

// Instance is one inference instance. Its methods may be called concurrently.
type Instance interface {
	ID() string
	// Capacity is the number of responses that it samples at once.
	Capacity() int
	// Generate returns req.N completions in order. It ends early, with ctx's
	// error, when ctx does.
	Generate(ctx context.Context, req Request) ([]Completion, error)
	// Publish returns when the instance serves w and holds nothing computed
	// under older weights. It returns the checksum of what now serves.
	Publish(ctx context.Context, w Weights) (checksum string, err error)
	Close() error
}

// Prober is an Instance that can be asked whether it answers. A fleet probes one
// that is DEAD, or whose publish has failed, and publishes the weights to it when
// a probe succeeds. Other instances wait for the next publish.
type Prober interface {
	Probe(ctx context.Context) error
}

package inference

import "context"

// Delta is the part of a response sampled since its previous Delta.
type Delta struct {
	Index    int // the response's position in the request, from 0
	IDs      []int32
	Logprobs []float32
	Top      [][]TokenLogprob // per token; nil unless the request asks for TopLogprobs
	// Text is the text since the previous Delta that later tokens cannot change. It excludes what
	// may still become a stop string or an incomplete character.
	Text string
	// Version and Checksum identify the weights that sampled the tokens.
	Version  int64
	Checksum string
}

// Streamer is an Instance that reports tokens as it samples them.
type Streamer interface {
	// Stream works like Generate and also calls emit with each response's tokens in order. Calls
	// of emit do not overlap, and the instance waits for each to return. A Delta's slices are
	// valid until then.
	Stream(ctx context.Context, req Request, emit func(Delta)) ([]Completion, error)
}

// TokenLogprob is a token and its log-probability under the model.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}

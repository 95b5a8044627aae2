package inference

import "context"

// Delta is the part of a response sampled since its previous Delta.
type Delta struct {
	Index    int // of the response in the request, from 0
	IDs      []int32
	Logprobs []float32
	Top      [][]TokenLogprob // one per token if the request asks for them
	// Text is the part of the text that is final. It holds back what may still become a
	// stop string or part of a character.
	Text string
	// Version and Checksum identify the weights that sampled it.
	Version  int64
	Checksum string
}

// Streamer is an Instance that reports tokens as it samples them.
type Streamer interface {
	// Stream works like Generate and also calls emit with each response's tokens in order,
	// from one goroutine at a time. The instance waits for emit. A Delta's slices are valid
	// until emit returns.
	Stream(ctx context.Context, req Request, emit func(Delta)) ([]Completion, error)
}

// TokenLogprob is a token and its log-probability under the model.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}

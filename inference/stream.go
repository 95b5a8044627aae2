package inference

import "context"

// Delta is what was sampled of one response since its last Delta.
type Delta struct {
	Index    int // of the response among the request's, from 0 on
	IDs      []int32
	Logprobs []float32
	Top      [][]TokenLogprob // one per token if the request asks for them
	// Text is the part of the text that is final. It holds back what may still
	// become a stop string or a part of a character.
	Text string
	// Version and Checksum identify the weights that sample it.
	Version  int64
	Checksum string
}

// Streamer is an Instance that reports tokens as it samples them.
type Streamer interface {
	// Stream is Generate, and calls emit with each response's tokens in order,
	// from one goroutine at a time. The instance waits for emit. A Delta's slices
	// are valid until emit returns.
	Stream(ctx context.Context, req Request, emit func(Delta)) ([]Completion, error)
}

// TokenLogprob is a token and the log-probability that the model gave it.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}

package inference

import (
	"errors"
	"fmt"
	"math"
)

// What a caller branches on. Everything else that an instance returns is a
// fault of the infrastructure, and another instance may do better.
var (
	// ErrStale is a request for, or a response of, another version of the
	// weights than the one that is held.
	ErrStale = errors.New("stale weights")
	// ErrInvalid is a request that no instance can serve: a fault of the data.
	ErrInvalid = errors.New("invalid request")
	// ErrClosed is a call to an instance or a fleet that has been closed or
	// removed.
	ErrClosed = errors.New("closed")
	// ErrNoInstance is a fleet in which too few instances serve, for too long.
	ErrNoInstance = errors.New("too few instances serve")
)

// MaxResponses is the largest N of a request.
const MaxResponses = 1 << 16

// The temperatures, beside a greedy 0, that logits can be divided by.
const (
	LeastTemperature = 1e-4
	MostTemperature  = 1e4
)

// CheckTemperature refuses a temperature, other than a greedy 0, that logits
// cannot be divided by in float32: one that does fails all that is sampled with it.
func CheckTemperature[T float32 | float64](t T) error {
	if t == 0 || t >= LeastTemperature && t <= MostTemperature {
		return nil
	}
	return fmt.Errorf("is %v, expected 0, or %v to %v", t, LeastTemperature, MostTemperature)
}

// Validate reports all that is wrong with r whatever the model is, as one
// error that wraps ErrInvalid.
func (r *Request) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	s := &r.Sampling
	fault(len(r.PromptIDs) == 0, "prompt has no tokens, expected at least 1")
	fault(r.N < 1 || r.N > MaxResponses, "%d responses, expected 1 to %d", r.N, MaxResponses)
	fault(r.FirstIndex < 0 || r.FirstIndex > math.MaxInt32, "index %d of the first response, expected 0 to %d", r.FirstIndex, math.MaxInt32)
	fault(r.TopLogprobs < 0, "%d top log-probabilities, expected 0 or more", r.TopLogprobs)
	fault(r.Version < 0, "version %d, expected 0 or more", r.Version)
	fault(s.MaxTokens < 1, "max tokens %d, expected at least 1", s.MaxTokens)
	if err := CheckTemperature(s.Temperature); err != nil {
		fault(true, "temperature %w", err)
	}
	fault(!(s.TopP > 0 && s.TopP <= 1), "top-p %v, expected more than 0 and at most 1", s.TopP)
	fault(s.TopK < 0 || s.TopK > math.MaxInt32, "top-k %d, expected 0 or more", s.TopK)
	fault(!(s.MinP >= 0 && s.MinP <= 1), "min-p %v, expected 0 to 1", s.MinP)
	for i, stop := range s.Stop {
		fault(stop == "", "stop string %d is empty", i)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(faults...))
}

package inference

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Errors that callers branch on. Any other error of an instance is an infrastructure fault:
// another instance may succeed.
var (
	// ErrStale reports a request or a response whose version of the weights is not the
	// current one.
	ErrStale = errors.New("stale weights")
	// ErrInvalid reports a request that no instance can serve: the data is at fault.
	ErrInvalid = errors.New("invalid request")
	// ErrClosed reports a call to a closed or removed instance or a closed fleet.
	ErrClosed = errors.New("closed")
	// ErrNoInstance reports that too few instances have served for too long.
	ErrNoInstance = errors.New("too few instances serve")
)

// BusyError reports that an instance refuses requests for the moment. Neither the instance nor the
// request is at fault.
type BusyError struct {
	After time.Duration // the delay that the instance asks for, as Retry-After does; 0 if none
	Err   error         // the reason; not nil
}

func (e *BusyError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *BusyError) Unwrap() error { return e.Err }

// RetryDelay returns how long to send no request to the instance: After but at most a minute, or a
// second if After is not set.
func (e *BusyError) RetryDelay() time.Duration {
	if e.After <= 0 {
		return time.Second
	}
	return min(e.After, time.Minute)
}

// MaxResponses is the largest N of a request.
const MaxResponses = 1 << 16

// MinTemperature and MaxTemperature bound the temperatures above 0, by which logits are divided:
// within them, float32 logits neither overflow nor lose their differences. A temperature of 0 means
// greedy sampling.
const (
	MinTemperature = 1e-4
	MaxTemperature = 1e4
)

// CheckTemperature returns an error unless t is 0 or from MinTemperature to MaxTemperature. NaN is
// an error.
func CheckTemperature[T float32 | float64](t T) error {
	if t == 0 || t >= MinTemperature && t <= MaxTemperature {
		return nil
	}
	return fmt.Errorf("is %v, expected 0, or %v to %v", t, MinTemperature, MaxTemperature)
}

// Validate reports all faults of r that do not depend on the model, in one error that wraps
// ErrInvalid. It returns nil if there are none.
func (r *Request) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	s := &r.Sampling // its float ranges are negated below, so that NaN is a fault too
	fault(len(r.PromptIDs) == 0, "prompt has no tokens, expected at least 1")
	fault(r.N < 1 || r.N > MaxResponses, "%d responses, expected 1 to %d", r.N, MaxResponses)
	fault(r.FirstIndex < 0 || r.FirstIndex > math.MaxInt32, "index %d of the first response, expected 0 to %d",
		r.FirstIndex, math.MaxInt32)
	fault(r.PromptTop < 0 || r.PromptTop > 0 && !r.PromptLogprobs,
		"%d top log-probabilities of the prompt, expected 0 or more and, without the prompt's log-probabilities, 0",
		r.PromptTop)
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

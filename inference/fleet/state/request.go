package state

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Request is a request until it is answered. It waits in the queue, is granted an instance,
// and is tried again if that fails. At any time it is in the queue (place is set), booked on a member
// (decided is false), or neither, which is the case before the first Enqueue and between tries.
type Request struct {
	responses int
	maxTokens int
	version   int64    // version of the weights that must answer; 0 accepts any
	keys      []uint64 // keys of the prompt's prefixes

	place   *list.Element // position in the queue; nil outside
	since   time.Time     // when it last entered the queue
	on      *member       // member of the current or last try
	try     int           // number of the current or last try, from 1
	decided bool          // the try has ended; true before the first

	wasBusy bool    // the last instance was busy, so the next try is not a retry
	retried bool    // the current try is counted as a retry
	failed  int     // number of tries that count towards Config.Attempts
	avoid   *member // member that last failed it; nil if none has
	refused refusal // the last refusal; m is nil if there was none
}

// refusal records that a member reported a request as invalid.
type refusal struct {
	m     *member
	epoch int64 // m's epoch when it got the request
	err   error
}

// NewRequest returns a Request with what the machine needs of req.
func NewRequest(req *inference.Request) *Request {
	return &Request{
		responses: req.N, maxTokens: req.Sampling.MaxTokens, version: req.Version, keys: prefixKeys(req.PromptIDs),
		decided: true,
	}
}

// maxWork returns the maximum number of tokens of r's responses.
func (r *Request) maxWork() int64 { return int64(r.responses) * int64(r.maxTokens) }

// next returns the verdict on r after a failed try on m. Tries on a busy instance and answers of
// other weights do not count towards Attempts; in both cases, another instance, or the same one
// later, can serve r.
func (r *Request) next(cfg *Config, m *member, err error) Verdict {
	fault := instanceFault(m, err)
	var busy *inference.BusyError
	r.wasBusy = errors.As(err, &busy)
	if r.wasBusy {
		return Verdict{Next: Retry, Err: fault}
	}
	if !errors.Is(err, inference.ErrStale) {
		r.failed++
	}
	r.avoid = m
	if r.failed >= cfg.Attempts {
		return Verdict{Next: Failed, Err: fmt.Errorf("generate: failed after %d attempts: %w", cfg.Attempts, fault)}
	}
	return Verdict{Next: Retry, Pause: cfg.backoff(r.try), Err: fault}
}

// instanceFault converts err for the fleet's callers. It hides ErrStale and ErrClosed, because a stale
// or closed instance does not make the fleet stale or closed.
func instanceFault(m *member, err error) error {
	if errors.Is(err, inference.ErrStale) || errors.Is(err, inference.ErrClosed) {
		return fmt.Errorf("generate on %s: %s", m.name, err.Error())
	}
	return fmt.Errorf("generate on %s: %w", m.name, err)
}

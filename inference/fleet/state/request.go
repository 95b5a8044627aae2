package state

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Request is a request until it is answered. It waits in the queue, is granted an instance,
// and is tried again if that fails. It is in the queue (place is set), or booked on one member
// (decided is false), or neither.
type Request struct {
	responses int
	maxTokens int
	version   int64    // that must answer; 0 accepts any
	keys      []uint64 // of the prompt's prefixes

	place   *list.Element // in the queue; nil outside
	since   time.Time     // when it last entered the queue
	on      *member       // of the current try
	try     int           // current one, from 1
	decided bool          // the current try has a verdict

	rested  bool    // the last instance was busy: the next try is not a retry
	retried bool    // the current try is counted as a retry
	failed  int     // tries that count
	avoid   *member // member that failed it last
	last    error
	refused refusal
}

// refusal records a member that reported a request as invalid, and the epoch of its weights
// at the time.
type refusal struct {
	m     *member
	epoch int64
	err   error
}

// NewRequest returns a Request with what the machine needs of req.
func NewRequest(req *inference.Request) *Request {
	return &Request{
		responses: req.N, maxTokens: req.Sampling.MaxTokens, version: req.Version, keys: prefixKeys(req.PromptIDs),
		decided: true,
	}
}

// work returns the maximum number of tokens of r.
func (r *Request) work() int64 { return int64(r.responses) * int64(r.maxTokens) }

// next returns the verdict on r after a failed try on m. Tries on a busy instance and answers of
// other weights do not count towards Attempts; in both cases, another instance, or the same one
// later, can serve r.
func (r *Request) next(cfg *Config, m *member, err error) Verdict {
	var busy *inference.BusyError
	if r.rested = errors.As(err, &busy); r.rested {
		r.last = instanceFault(m, err)
		return Verdict{Next: Retry, Err: r.last}
	}
	if !errors.Is(err, inference.ErrStale) {
		r.failed++
	}
	r.avoid, r.last = m, instanceFault(m, err)
	if r.failed >= cfg.Attempts {
		return Verdict{Next: Failed, Err: fmt.Errorf("generate: failed after %d attempts: %w", cfg.Attempts, r.last)}
	}
	return Verdict{Next: Retry, Pause: cfg.backoff(r.try), Err: r.last}
}

// instanceFault converts err for the fleet's callers: a stale or closed instance does not
// make the fleet stale or closed.
func instanceFault(m *member, err error) error {
	if errors.Is(err, inference.ErrStale) || errors.Is(err, inference.ErrClosed) {
		return fmt.Errorf("generate on %s: %s", m.name, err.Error())
	}
	return fmt.Errorf("generate on %s: %w", m.name, err)
}

package state

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Request is a request on its way to an answer: it waits in the queue, is
// granted an instance, and is tried again if that fails.
type Request struct {
	responses int
	maxTokens int
	version   int64    // that must answer; 0 takes any
	keys      []uint64 // of the prompt's beginnings

	place   *list.Element // in the queue, nil outside
	since   time.Time     // when it entered the queue last
	on      *member       // of the first call of the current try
	try     int           // current one, from 1 on
	running int           // calls of the current try
	decided bool          // the current try has its verdict

	failed  int     // tries that count
	avoid   *member // failed this request last
	last    error
	refused refusal
}

// refusal is a member that reported a request as invalid, and the publish that
// it held then.
type refusal struct {
	m     *member
	epoch int64
	err   error
}

// NewRequest returns what the machine needs to know of req.
func NewRequest(req *inference.Request) *Request {
	return &Request{
		responses: req.N, maxTokens: req.Sampling.MaxTokens, version: req.Version, keys: prefixKeys(req.PromptIDs),
		decided: true,
	}
}

// work is the most tokens that r may ask for.
func (r *Request) work() int64 { return int64(r.responses) * int64(r.maxTokens) }

// next decides what becomes of r after a try on m that failed.
func (r *Request) next(cfg *Config, m *member, err error) Verdict {
	if !errors.Is(err, inference.ErrStale) {
		r.failed++
	}
	r.avoid, r.last = m, instanceFault(m, err)
	if r.failed >= cfg.Attempts {
		return Verdict{Next: Failed, Err: fmt.Errorf("generate: no answer in %d tries: %w", cfg.Attempts, r.last)}
	}
	return Verdict{Next: Retry, After: cfg.backoff(r.try), Err: r.last}
}

// instanceFault is err as the fleet's callers see it: a stale or closed instance
// does not make the fleet stale or closed.
func instanceFault(m *member, err error) error {
	if errors.Is(err, inference.ErrStale) || errors.Is(err, inference.ErrClosed) {
		return fmt.Errorf("generate on %s: %s", m.name, err.Error())
	}
	return fmt.Errorf("generate on %s: %w", m.name, err)
}

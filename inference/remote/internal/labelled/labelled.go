// Package labelled publishes to and samples from servers that identify their weights by a
// label instead of a checksum.
package labelled

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/completions"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// MaxResumes is how many times a response that the server aborts is continued.
const MaxResumes = 8

// Server tracks the weights of one server. Its methods may be called concurrently.
type Server struct {
	cfg  Config
	turn chan struct{} // holds a token unless a publish runs

	mu      sync.Mutex
	version int64  // 0 before the first verified publish and after a failed one
	label   string // empty if version is 0
	begun   int64  // number of publishes started
	record  *publish.Record
}

// Config configures a Server.
type Config struct {
	URL    string // also the instance's ID
	Kind   string // its name
	Store  *publish.Store
	Canary *publish.Canary // may be nil
	Remedy string          // what to do if an update does not reach every tensor
	// Limit returns the maximum number of tokens of a response to req.
	Limit func(req *inference.Request) (int, error)
}

// New returns a Server without published weights.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// now returns the version and label for a request, and the number of publishes started. A
// server without a publish has version 0.
func (s *Server) now(req *inference.Request) (version int64, label string, begun int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun > 0 && s.label == "" {
		return 0, "", 0, fmt.Errorf("the server has no verified weights: %w", inference.ErrStale)
	}
	if req.Version != 0 && req.Version != s.version {
		return 0, "", 0, fmt.Errorf("request is for version %d, the server holds %d: %w", req.Version, s.version, inference.ErrStale)
	}
	return s.version, s.label, s.begun, nil
}

// unchanged returns an error if a publish has started since begun. Even a publish of the
// same weights counts: the server may have lost them in between.
func (s *Server) unchanged(begun int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun != begun {
		return fmt.Errorf("weights were published during the request: %w", inference.ErrStale)
	}
	return nil
}

// Calls are how a Server publishes to its kind of server and samples from it.
type Calls struct {
	// Push loads weights from a folder and verifies the label that the server reports.
	Push func(ctx context.Context, folder, label string) error
	// Held returns an error if the server reports another label, as after a restart.
	Held func(ctx context.Context, label string) error
	// Sampler returns a Sampler under the weights of label.
	Sampler func(label string) publish.Sampler
}

// Publish makes w the current weights. If the server does not hold weights that were
// verified before, and there is a canary, Publish pushes perturbed weights first.
func (s *Server) Publish(ctx context.Context, w inference.Weights, calls Calls) (checksum string, err error) {
	defer func() {
		if errors.Is(err, publish.ErrWeights) && s.cfg.Remedy != "" {
			err = fmt.Errorf("%w. %s", err, s.cfg.Remedy)
		}
		if err != nil {
			err = fmt.Errorf("instance %s: %w", s.cfg.URL, publish.Fault(err))
		}
	}()
	if s.cfg.Store == nil {
		return "", fmt.Errorf("%s reads weights from files; set a folder that the trainer and the server share", s.cfg.Kind)
	}
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	label, record := s.begin()
	if record != nil && transport.Patiently(ctx, func() error { return calls.Held(ctx, label) }) != nil {
		record = nil
	}
	if record == nil && s.cfg.Canary != nil {
		if record, err = s.prove(ctx, calls); err != nil {
			return "", err
		}
	}
	if err := s.push(ctx, w, calls); err != nil {
		return "", err
	}
	if s.cfg.Canary != nil {
		if record, err = s.cfg.Canary.Next(ctx, w.Version(), record, patiently(calls.Sampler(publish.Label(w)))); err != nil {
			return "", err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.label, s.record = w.Version(), publish.Label(w), record
	return w.Checksum(), nil
}

// begin starts a publish and returns the label and the record of the weights before it,
// which the server no longer counts as holding.
func (s *Server) begin() (label string, record *publish.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	label, record = s.label, s.record
	s.version, s.label, s.record = 0, "", nil
	s.begun++
	return label, record
}

// prove publishes perturbed weights and returns the server's first record.
func (s *Server) prove(ctx context.Context, calls Calls) (*publish.Record, error) {
	p, err := s.cfg.Canary.Perturb(ctx)
	if err != nil {
		return nil, fmt.Errorf("perturb weights: %w", err)
	}
	defer p.Free()
	if err := s.push(ctx, p.Weights, calls); err != nil {
		return nil, err
	}
	return s.cfg.Canary.First(ctx, p, patiently(calls.Sampler(publish.Label(p))))
}

// push writes w to the store and makes the server read it.
func (s *Server) push(ctx context.Context, w inference.Weights, calls Calls) error {
	folder, err := s.cfg.Store.Put(ctx, w)
	if err != nil {
		return err
	}
	return calls.Push(ctx, folder, publish.Label(w))
}

// patiently returns sample, repeated while the server is busy.
func patiently(sample publish.Sampler) publish.Sampler {
	return func(ctx context.Context, req inference.Request, limit int) (out []inference.Completion, err error) {
		err = transport.Patiently(ctx, func() error {
			out, err = sample(ctx, req, limit)
			return err
		})
		return out, err
	}
}

// resume continues aborted responses from where they ended. It misses a stop string that
// spans two parts.
func resume(ctx context.Context, req inference.Request, limit int, out []inference.Completion, sample publish.Sampler) error {
	for i := range out {
		c := &out[i]
		for tries := 0; c.Finish == completions.Abort; tries++ {
			if tries == MaxResumes {
				return fmt.Errorf("response %d was aborted %d times", i, tries+1)
			}
			rest := req
			rest.N, rest.PromptLogprobs, rest.Ended = 1, false, nil
			rest.PromptIDs = slices.Concat(req.PromptIDs, c.IDs)
			// Use draws that the first part did not.
			rest.Seed += uint64(i+1)<<32 | uint64(len(c.IDs))
			if len(c.IDs) >= limit {
				return fmt.Errorf("response %d was aborted at its full length", i)
			}
			next, err := sample(ctx, rest, limit-len(c.IDs))
			if err != nil {
				return err
			}
			c.IDs = append(c.IDs, next[0].IDs...)
			c.Logprobs = append(c.Logprobs, next[0].Logprobs...)
			c.Top = append(c.Top, next[0].Top...)
			c.Text += next[0].Text
			c.Finish = next[0].Finish
		}
	}
	return nil
}

// Generate samples all responses of req under the same weights. after runs after each
// exchange and its error fails the request.
func (s *Server) Generate(ctx context.Context, req inference.Request, sample func(label string) publish.Sampler,
	after func(ctx context.Context, label string) error,
) (out []inference.Completion, err error) {
	defer func() {
		if err != nil {
			out, err = nil, fmt.Errorf("instance %s: %w", s.cfg.URL, err)
		}
	}()
	limit, err := s.cfg.Limit(&req)
	if err != nil {
		return nil, err
	}
	version, label, begun, err := s.now(&req)
	if err != nil {
		return nil, err
	}
	told := req.Ended
	if told != nil {
		req.Ended = func(index int, c inference.Completion) {
			if c.Finish != completions.Abort { // otherwise it is resumed
				c.Version = version
				told(index, c)
			}
		}
	}
	checked := func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error) {
		out, err := sample(label)(ctx, req, limit)
		if err == nil {
			err = after(ctx, label)
		}
		if changed := s.unchanged(begun); changed != nil {
			return nil, changed // takes precedence over err
		}
		return out, err
	}
	out, err = checked(ctx, req, limit)
	if err == nil {
		err = resume(ctx, req, limit, out, checked)
	}
	if err != nil {
		return nil, err
	}
	for i := range out {
		if len(out[i].IDs) == 0 {
			return nil, errors.New("response has no tokens")
		}
		out[i].Version = version
	}
	return out, nil
}

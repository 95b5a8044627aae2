package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// maxResumes is how many times a response that the server aborts is continued.
const maxResumes = 8

// labelled is the part of instances of kinds that identify their weights by a label instead of a
// checksum. Its methods may be called concurrently.
type labelled struct {
	*client
	remedy string        // what to do if an update does not reach every tensor
	turn   chan struct{} // holds a token unless a publish runs

	mu      sync.Mutex // guards the fields below
	version int64      // 0 before the first verified publish and after a failed one
	label   string     // empty if version is 0
	begun   int64      // number of publishes started
	record  *publish.Record
}

func newLabelled(c *client) *labelled {
	l := &labelled{client: c, remedy: c.kind.remedy, turn: make(chan struct{}, 1)}
	if c.cfg.Adapters {
		l.remedy = adapterRemedy
	}
	l.turn <- struct{}{}
	return l
}

// now returns the version and label for a request, and the number of publishes started. A
// server without a publish has version 0.
func (l *labelled) now(req *inference.Request) (version int64, label string, begun int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun > 0 && l.label == "" {
		return 0, "", 0, fmt.Errorf("the server has no verified weights: %w", inference.ErrStale)
	}
	if req.Version != 0 && req.Version != l.version {
		return 0, "", 0, fmt.Errorf("request is for version %d, the server holds %d: %w", req.Version, l.version,
			inference.ErrStale)
	}
	return l.version, l.label, l.begun, nil
}

// unchanged returns an error if a publish has started since begun. Even a publish of the
// same weights counts: the server may have lost them in between.
func (l *labelled) unchanged(begun int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun != begun {
		return fmt.Errorf("weights were published during the request: %w", inference.ErrStale)
	}
	return nil
}

// labelledCalls are the calls of a kind.
type labelledCalls struct {
	// push loads weights from a folder and verifies the label that the server reports.
	push func(ctx context.Context, folder, label string) error
	// held returns an error if the server reports another label, as after a restart.
	held func(ctx context.Context, label string) error
	// sampler returns a Sampler under the weights of label.
	sampler func(label string) publish.Sampler
}

// publish makes w the current weights. If the server does not hold weights that were
// verified before, and there is a canary, publish pushes perturbed weights first.
func (l *labelled) publish(ctx context.Context, w inference.Weights, calls labelledCalls) (checksum string, err error) {
	defer func() {
		if errors.Is(err, publish.ErrWeights) && l.remedy != "" {
			err = fmt.Errorf("%w. %s", err, l.remedy)
		}
		if err != nil {
			err = fmt.Errorf("instance %s: %w", l.url, publish.Fault(err))
		}
	}()
	if l.cfg.Store == nil {
		return "", fmt.Errorf("%s reads weights from files; set a folder that the trainer and the server share",
			l.kind.Name)
	}
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	label, record := l.begin()
	if record != nil && transport.Patiently(ctx, func() error { return calls.held(ctx, label) }) != nil {
		record = nil
	}
	if record == nil && l.cfg.Canary != nil {
		if record, err = l.prove(ctx, calls); err != nil {
			return "", err
		}
	}
	if err := l.push(ctx, w, calls); err != nil {
		return "", err
	}
	if l.cfg.Canary != nil {
		sample := patiently(calls.sampler(publish.Label(w)))
		if record, err = l.cfg.Canary.Next(ctx, w.Version(), record, sample); err != nil {
			return "", err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version, l.label, l.record = w.Version(), publish.Label(w), record
	return w.Checksum(), nil
}

// begin starts a publish: no weights count as verified until it ends. It returns the label and the
// record of those before it.
func (l *labelled) begin() (label string, record *publish.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	label, record = l.label, l.record
	l.version, l.label, l.record = 0, "", nil
	l.begun++
	return label, record
}

// prove publishes perturbed weights and returns the server's first record.
func (l *labelled) prove(ctx context.Context, calls labelledCalls) (*publish.Record, error) {
	p, err := l.cfg.Canary.Perturb(ctx)
	if err != nil {
		return nil, fmt.Errorf("perturb weights: %w", err)
	}
	defer p.Free()
	if err := l.push(ctx, p.Weights, calls); err != nil {
		return nil, err
	}
	return l.cfg.Canary.First(ctx, p, patiently(calls.sampler(publish.Label(p))))
}

// push writes w to the store and makes the server read it.
func (l *labelled) push(ctx context.Context, w inference.Weights, calls labelledCalls) error {
	folder, err := l.cfg.Store.Put(ctx, w)
	if err != nil {
		return err
	}
	return calls.push(ctx, folder, publish.Label(w))
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
func resume(
	ctx context.Context, req inference.Request, limit int, out []inference.Completion, sample publish.Sampler,
) error {
	for i := range out {
		c := &out[i]
		for tries := 0; c.Finish == finishAbort; tries++ {
			if tries == maxResumes {
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

// generate samples all responses of req under the same weights. after runs after each
// exchange and its error fails the request.
func (l *labelled) generate(ctx context.Context, req inference.Request, sample func(label string) publish.Sampler,
	after func(ctx context.Context, label string) error,
) (out []inference.Completion, err error) {
	defer func() {
		if err != nil {
			out, err = nil, fmt.Errorf("instance %s: %w", l.url, err)
		}
	}()
	limit, err := l.limit(&req)
	if err != nil {
		return nil, err
	}
	version, label, begun, err := l.now(&req)
	if err != nil {
		return nil, err
	}
	ended := req.Ended
	if ended != nil {
		req.Ended = func(index int, c inference.Completion) {
			if c.Finish != finishAbort { // otherwise it is resumed
				c.Version = version
				ended(index, c)
			}
		}
	}
	checked := func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error) {
		out, err := sample(label)(ctx, req, limit)
		if err == nil {
			err = after(ctx, label)
		}
		if changed := l.unchanged(begun); changed != nil {
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

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

// maxResumes is the maximum number of times that an aborted response is continued.
const maxResumes = 8

// labelled is the common part of instances whose servers identify their weights by a label. The client
// chooses the label (publish.Label) when it publishes weights, and the server reports it. Unlike a
// checksum, a label says nothing about the values, so a canary may verify these. Methods may be called
// concurrently.
//
// A server may lose its weights at any time, for example by a restart. Every exchange therefore ends with a
// check of the label and of the number of publishes, so that no response comes from weights other than
// those of its version.
type labelled struct {
	*client
	remedy     string        // tells users what to do if an update does not reach every tensor; may be empty
	publishing chan struct{} // semaphore of size 1, so that waiting can be canceled; full while a publish runs

	mu      sync.Mutex      // guards the fields below
	version int64           // current version; 0 before the first verified publish and after a failed one
	label   string          // label of version; empty if version is 0
	begun   int64           // number of publishes begun
	record  *publish.Record // what the canary knows about the server; nil if label is empty or without a canary
}

// newLabelled returns a labelled instance without weights.
func newLabelled(c *client) *labelled {
	l := &labelled{client: c, remedy: c.kind.remedy, publishing: make(chan struct{}, 1)}
	if c.cfg.Adapters {
		l.remedy = adapterRemedy
	}
	return l
}

// current returns the version and label of the weights that must answer req, and the number of
// publishes begun, for unchanged. Before the first publish they are 0 and empty: the server may then
// answer with any weights. Errors wrap inference.ErrStale.
func (l *labelled) current(req *inference.Request) (version int64, label string, begun int64, err error) {
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

// unchanged returns an error if a publish has begun since current returned begun. Even a publish of
// the same weights counts, because the server may have lost them before.
func (l *labelled) unchanged(begun int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun != begun {
		return fmt.Errorf("weights were published during the request: %w", inference.ErrStale)
	}
	return nil
}

// labelledCalls are the calls to a server that depend on its kind.
type labelledCalls struct {
	// push makes the server load weights from a folder under a label, and verifies that it reports
	// the label.
	push func(ctx context.Context, folder, label string) error
	// verify returns an error unless the server reports label. After a restart it does not.
	verify func(ctx context.Context, label string) error
	// sampler returns a Sampler for responses under the weights of label.
	sampler func(label string) publish.Sampler
}

// publish makes w the current weights. If there is a canary and the server does not hold weights that
// the canary has verified, publish pushes perturbed weights first.
func (l *labelled) publish(ctx context.Context, w inference.Weights, calls labelledCalls) (checksum string, err error) {
	defer func() {
		if errors.Is(err, publish.ErrWeights) && l.remedy != "" {
			err = fmt.Errorf("%w. %s", err, l.remedy)
		}
		if err != nil {
			err = fmt.Errorf("instance %s: %w", l.url, publish.ServerError(err))
		}
	}()
	if l.cfg.Store == nil {
		return "", fmt.Errorf("%s reads weights from files; set a folder that the trainer and the server share",
			l.kind.Name)
	}
	select {
	case l.publishing <- struct{}{}:
		defer func() { <-l.publishing }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	label, record := l.begin()
	if record != nil && transport.Patiently(ctx, func() error { return calls.verify(ctx, label) }) != nil {
		record = nil // the server has lost the weights, and may have lost the ability to load them
	}
	if record == nil && l.cfg.Canary != nil {
		if record, err = l.publishPerturbed(ctx, calls); err != nil {
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

// begin begins a publish: there are no current weights until it succeeds. It returns the label and
// the record of the weights that were current.
func (l *labelled) begin() (label string, record *publish.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	label, record = l.label, l.record
	l.version, l.label, l.record = 0, "", nil
	l.begun++
	return label, record
}

// publishPerturbed pushes perturbed weights and returns the canary's first record of the server.
func (l *labelled) publishPerturbed(ctx context.Context, calls labelledCalls) (*publish.Record, error) {
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

// patiently returns a Sampler that calls sample again while the server is busy; see
// transport.Patiently.
func patiently(sample publish.Sampler) publish.Sampler {
	return func(ctx context.Context, req inference.Request, limit int) (out []inference.Completion, err error) {
		err = transport.Patiently(ctx, func() error {
			out, err = sample(ctx, req, limit)
			return err
		})
		return out, err
	}
}

// resume continues aborted responses in out from where they ended, with sample, up to limit tokens per
// response. It does not notice a stop string that begins in one part and ends in the next.
func resume(
	ctx context.Context, req inference.Request, limit int, out []inference.Completion, sample publish.Sampler,
) error {
	for i := range out {
		c := &out[i]
		for tries := 0; c.Finish == finishAbort; tries++ {
			if tries == maxResumes {
				return fmt.Errorf("response %d was aborted %d times", i, tries+1)
			}
			if len(c.IDs) >= limit {
				return fmt.Errorf("response %d was aborted at its full length", i)
			}
			more := req
			more.N, more.PromptLogprobs, more.Ended = 1, false, nil
			more.PromptIDs = slices.Concat(req.PromptIDs, c.IDs)
			// A new seed, because draws start again with the seed: the old one would repeat them.
			more.Seed += uint64(i+1)<<32 | uint64(len(c.IDs))
			next, err := sample(ctx, more, limit-len(c.IDs))
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

// generate samples all responses of req under the same weights. It calls after after each exchange;
// an error of after fails the request.
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
	version, label, begun, err := l.current(&req)
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
			return nil, changed // the publish probably caused err
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

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/completions"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// maxResumes is how often a response is gone on with that a server breaks off.
const maxResumes = 8

// labelled is what is known of the weights of a server that keeps a label
// rather than a checksum.
type labelled struct {
	publish chan struct{} // holds a token while nobody publishes

	mu      sync.Mutex
	version int64  // 0 before the first verified publish and after a failed one
	label   string // empty then
	begun   int64  // publishes
	seen    *publish.Sighting
}

func newLabelled() *labelled {
	l := &labelled{publish: make(chan struct{}, 1)}
	l.publish <- struct{}{}
	return l
}

// now is the version and the label for a request, and how many publishes have
// begun. A server that was never published to serves version 0.
func (l *labelled) now(req *inference.Request) (version int64, label string, begun int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun > 0 && l.label == "" {
		return 0, "", 0, fmt.Errorf("no verified weights: %w", inference.ErrStale)
	}
	if req.Version != 0 && req.Version != l.version {
		return 0, "", 0, fmt.Errorf("request of version %d, the server holds %d: %w", req.Version, l.version, inference.ErrStale)
	}
	return l.version, l.label, l.begun, nil
}

// unchanged is an error where a publish has begun since now, be it of the same
// weights: a server that had lost them may have got them back.
func (l *labelled) unchanged(begun int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun != begun {
		return fmt.Errorf("weights were published meanwhile: %w", inference.ErrStale)
	}
	return nil
}

// update runs one publish: push makes w serve and verifies the label that the
// server reports, sample is for the canary.
func (l *labelled) update(ctx context.Context, c *client, w inference.Weights,
	push func(ctx context.Context, folder, label string) error, sample publish.Sampler,
) (checksum string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("instance %s: %w", c.url, notData(err))
		}
	}()
	if c.cfg.Store == nil {
		return "", fmt.Errorf("%s reads weights from files, expected a folder that trainer and server both see", c.kind.Name)
	}
	select {
	case <-l.publish:
		defer func() { l.publish <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	folder, err := c.cfg.Store.Put(ctx, w)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	l.version, l.label = 0, ""
	l.begun++
	seen := l.seen
	l.mu.Unlock()
	if err := push(ctx, folder, publish.Label(w)); err != nil {
		return "", err
	}
	if c.cfg.Canary != nil {
		if seen, err = c.cfg.Canary.Look(ctx, w.Version(), seen, sample); err != nil {
			return "", err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version, l.label, l.seen = w.Version(), publish.Label(w), seen
	return w.Checksum(), nil
}

// resume goes on with the responses that were broken off, each where it ended.
// A stop string across the seam is not seen.
func resume(ctx context.Context, req inference.Request, limit int, out []inference.Completion, sample publish.Sampler) error {
	for i := range out {
		c := &out[i]
		for tries := 0; c.Finish == completions.Abort; tries++ {
			if tries == maxResumes {
				return fmt.Errorf("response %d was broken off %d times", i, tries+1)
			}
			rest := req
			rest.N, rest.PromptLogprobs = 1, false
			rest.PromptIDs = slices.Concat(req.PromptIDs, c.IDs)
			// Draws that the first part has not had.
			rest.Seed += uint64(i+1)<<32 | uint64(len(c.IDs))
			if len(c.IDs) >= limit {
				return fmt.Errorf("response %d was broken off at its full length", i)
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

// generate samples all of req with one set of weights; after is asked for an
// error when the responses are in, before any is gone on with and at the end.
func (l *labelled) generate(ctx context.Context, c *client, req inference.Request, sample func(label string) publish.Sampler,
	after func(ctx context.Context, label string) error,
) (out []inference.Completion, err error) {
	defer func() {
		if err != nil {
			out, err = nil, fmt.Errorf("instance %s: %w", c.url, err)
		}
	}()
	limit, err := c.limit(&req)
	if err != nil {
		return nil, err
	}
	version, label, begun, err := l.now(&req)
	if err != nil {
		return nil, err
	}
	checked := func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error) {
		out, err := sample(label)(ctx, req, limit)
		if err == nil {
			err = after(ctx, label)
		}
		if changed := l.unchanged(begun); changed != nil {
			return nil, changed // whatever came of it, and of asking
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
			return nil, errors.New("a response has no tokens")
		}
		out[i].Version = version
	}
	return out, nil
}

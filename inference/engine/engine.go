// Package engine samples from a model with continuous batching and a paged
// key-value cache.
//
// # Scheduling
//
// Requests run first come, first served, and a request's responses run in order,
// so that the earliest groups finish first. A request's prompt runs once. Its
// responses share the prompt's full pages; each gets a copy of the last, partly
// filled page. Then each step runs one token of every running response.
//
// Responses take pages as they grow; nothing is reserved for the maximum length.
// When no page is free, the youngest running response is preempted: it releases
// its pages and returns to its place in the queue. On its next turn, its tokens
// run through the model again, with the same result, before sampling continues.
// The oldest response is never preempted, so every response finishes. A request
// is refused if a single response of it would not fit the cache.
//
// # Exactness
//
// A response's tokens and log-probabilities depend only on the weights, the
// prompt, the sampling settings, the seed and the response's index. They do not
// depend on concurrent requests, the size of the cache or preemption. This holds
// on devices whose kernels keep a fixed order.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// Config sets an engine's limits and callbacks.
type Config struct {
	// ID names the instance.
	ID string
	// MaxRunning is the maximum number of responses in one step.
	MaxRunning int
	// CachePages is the size of the key-value cache, in pages of npu.PageSize
	// positions. 0 means room for MaxRunning responses of 1,024 positions, and
	// for at least one response of the full context.
	CachePages int
	// PrefillRows is the maximum number of prompt tokens in one prefill. The rest
	// of a longer prompt runs token by token. 0 means 1,024.
	PrefillRows int
	// Context is the maximum number of positions of prompt and response together. 0, and more than
	// the model's maximum, mean the model's maximum.
	Context int
	// Released starts the engine as Engine.Release leaves it: without a cache and activations.
	Released bool
	// Span, if set, is called for each span of work, on the engine's goroutine.
	// It must not retain the span's Seeds.
	Span func(s Span)
	// Rest, if set, is called with true before the engine waits without requests, and with false when
	// a request or another order ends the wait, on the engine's goroutine.
	Rest func(resting bool)
}

// Validate returns all faults of c joined.
func (c *Config) Validate() error {
	var faults []error
	if c.ID == "" {
		faults = append(faults, errors.New("engine: id is empty"))
	}
	if c.MaxRunning < 1 {
		faults = append(faults, fmt.Errorf("engine %s: max running is %d, expected at least 1", c.ID, c.MaxRunning))
	}
	for _, v := range []struct {
		name  string
		value int
	}{{"cache pages", c.CachePages}, {"prefill rows", c.PrefillRows}, {"context", c.Context}} {
		if v.value < 0 {
			faults = append(faults, fmt.Errorf("engine %s: %s is %d, expected at least 0", c.ID, v.name, v.value))
		}
	}
	return errors.Join(faults...)
}

// withDefaults returns c with unset fields filled in, for a model with the given maximum context.
func (c Config) withDefaults(context int) Config {
	if c.Context == 0 || c.Context > context {
		c.Context = context
	}
	if c.PrefillRows == 0 {
		c.PrefillRows = 1024
	}
	c.PrefillRows = min(c.PrefillRows, c.Context)
	if c.CachePages == 0 {
		c.CachePages = max(c.MaxRunning*pagesFor(min(c.Context, 1024)), pagesFor(c.Context))
	}
	return c
}

// Cache returns the shape of the key-value cache of an engine for a model.
func (c Config) Cache(mc *model.Config) cache.Shape {
	c = c.withDefaults(mc.MaxPositions)
	return mc.Cache(c.CachePages, c.MaxRunning, c.Context)
}

// Rows returns the maximum number of rows (tokens) of one pass through the model, for a model with
// the given maximum context.
func (c Config) Rows(context int) int {
	c = c.withDefaults(context)
	return max(c.PrefillRows, c.MaxRunning)
}

// Decoder turns token ids into text.
type Decoder interface {
	Decode(ids []int32) string
}

// Stats counts an engine's work since it started.
type Stats struct {
	Busy        time.Duration // time with requests to serve
	Steps       int64         // decode steps
	Tokens      int64         // response tokens sampled
	PrefillRows int64         // prompt tokens run in prefills
	ReplayRows  int64         // prompt tokens and replayed response tokens run one by one in decode steps
	Preemptions int64         // responses preempted
	Running     int           // responses that run after the last step
	Waiting     int           // responses that wait for a row after the last step
	FreePages   int           // free pages of the cache after the last step
	CachePages  int           // pages of the cache
	Version     int64         // version of the weights; 0 before the first publish
}

// Engine is an inference.Instance in this process. One goroutine runs the model;
// Close ends it. The methods check requests and hand them to that goroutine through the mailbox.
// They may be called concurrently.
type Engine struct {
	cfg     Config
	vocab   int
	tok     Decoder // nil without a tokenizer
	mailbox *mailbox
	loop    *loop // only the engine's goroutine uses it

	ended    chan struct{} // closed when the goroutine ends
	closeErr error         // from closing the device; set before ended is closed
}

// New starts an engine on dev, which it owns and closes; if New fails, dev
// remains the caller's. tok may be nil: then completions have no text and
// requests with stop strings are refused. The engine refuses all requests until
// the first Publish.
func New(cfg Config, mc *model.Config, tok Decoder, dev npu.Device) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(mc.MaxPositions)
	m, err := newRunner(dev, mc, &cfg)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", cfg.ID, err)
	}
	return start(cfg, mc.VocabSize, tok, m), nil
}

// start starts an engine over m. cfg must have its defaults filled in.
func start(cfg Config, vocab int, tok Decoder, m forward) *Engine {
	e := newEngine(cfg, vocab, tok, m)
	go e.run()
	return e
}

// newEngine returns an engine without its goroutine.
func newEngine(cfg Config, vocab int, tok Decoder, m forward) *Engine {
	b := newMailbox(Stats{CachePages: cfg.CachePages, FreePages: cfg.CachePages})
	return &Engine{
		cfg: cfg, vocab: vocab, tok: tok, mailbox: b, loop: newLoop(cfg, vocab, tok, m, b),
		ended: make(chan struct{}),
	}
}

// run is the engine's goroutine.
func (e *Engine) run() {
	defer close(e.ended)
	e.closeErr = e.loop.run()
}

// ID returns the configured name.
func (e *Engine) ID() string { return e.cfg.ID }

// Capacity returns the maximum number of responses in one step.
func (e *Engine) Capacity() int { return e.cfg.MaxRunning }

// Stats returns the counters as of the last step.
func (e *Engine) Stats() Stats { return e.mailbox.latest() }

// Generate samples req.N responses. Errors wrap inference.ErrInvalid if the request can never be
// served, inference.ErrStale if the engine holds other weights or receives them meanwhile, and
// inference.ErrClosed after Close. If ctx ends first, the error is ctx's cause. Other errors come
// from the device.
func (e *Engine) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	g, err := e.newGroup(ctx, req)
	if err == nil {
		err = e.mailbox.submit(g)
	}
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", e.cfg.ID, err)
	}
	if err := e.wait(g); err != nil {
		return nil, err
	}
	return g.completions(e.tok), nil
}

// wait calls the request's Ended until g is done, and returns g's error. It returns early if the
// request's context ends, which the loop also notices to free the pages, or if the engine has ended.
func (e *Engine) wait(g *group) error {
	for running := true; running; {
		select {
		case i := <-g.endings:
			g.req.Ended(i, g.completion(i, e.tok))
		case <-g.done:
			running = false
		case <-g.ctx.Done():
			return context.Cause(g.ctx)
		case <-e.ended:
			return fmt.Errorf("engine %s: %w", e.cfg.ID, inference.ErrClosed)
		}
	}
	if g.err != nil {
		return fmt.Errorf("engine %s: %w", e.cfg.ID, g.err)
	}
	return nil
}

// Publish makes w current before the next step. w must be a *model.Snapshot or another type with its
// Weights method. Requests that started under older weights, and requests for an older version, end
// with inference.ErrStale; their caches are freed. Version 0 marks weights that no request can ask
// for. Publish does not copy the weights: they must not change until a later Publish or Close
// returns.
func (e *Engine) Publish(ctx context.Context, w inference.Weights) (string, error) {
	o := &publishOrder{ctx: ctx, weights: w, checksum: w.Checksum(), done: make(chan error, 1)}
	if err := e.mailbox.publish(o); err != nil {
		return "", fmt.Errorf("engine %s: %w", e.cfg.ID, err)
	}
	select {
	case err := <-o.done:
		if err != nil {
			return "", fmt.Errorf("engine %s: publish version %d: %w", e.cfg.ID, w.Version(), err)
		}
		return o.checksum, nil
	case <-ctx.Done():
		return "", fmt.Errorf("engine %s: publish version %d: %w", e.cfg.ID, w.Version(), context.Cause(ctx))
	}
}

// Allocate allocates the cache and the activations if they are freed; see Release. The next request
// also allocates them, and fails if there is not enough memory.
func (e *Engine) Allocate(ctx context.Context) error { return e.orderMemory(ctx, true) }

// Release frees the cache and the activations. It waits until the engine has no requests.
func (e *Engine) Release(ctx context.Context) error { return e.orderMemory(ctx, false) }

// orderMemory makes the loop allocate memory, or free it, and waits for the result.
func (e *Engine) orderMemory(ctx context.Context, allocate bool) error {
	r := &memoryOrder{allocate: allocate, done: make(chan error, 1)}
	err := e.mailbox.ask(r)
	if err == nil {
		select {
		case err = <-r.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-e.ended:
			err = inference.ErrClosed
		}
	}
	if err != nil {
		return fmt.Errorf("engine %s: %w", e.cfg.ID, err)
	}
	return nil
}

// Close ends all requests with inference.ErrClosed, waits for the loop and closes
// the device.
func (e *Engine) Close() error {
	e.mailbox.close()
	<-e.ended
	return e.closeErr
}

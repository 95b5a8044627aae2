// Package engine samples from a model with continuous batching and a paged
// key-value cache.
//
// # Scheduling
//
// Requests are served first come, first served, and the responses of a request
// in their order, so that the earliest groups finish first. A request's prompt
// runs once; its full pages are shared by its responses and the page that it
// ends in is copied for each. Then each step runs one token of every running
// response.
//
// Pages are taken as responses grow, not reserved for the longest that they
// could become. When none is left the youngest running response gives its pages
// back and waits at its place in the queue; when its turn comes its tokens run
// through the model again, with the same result, before it goes on. The oldest
// response never gives way, so all of them end; a request of which one response
// alone would not fit is refused.
//
// # Exactness
//
// A response's tokens and log-probabilities depend on the weights, the prompt,
// the sampling settings, the seed and the response's index, and on nothing
// else: not on what runs beside it, on the size of the cache or on whether it
// had to give way. That holds on devices whose kernels keep a fixed order.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// Config is the shape of an engine.
type Config struct {
	// ID names the instance.
	ID string
	// MaxRunning is the number of responses that one step runs at most.
	MaxRunning int
	// CachePages is the size of the key-value cache, npu.PageSize positions a
	// page; 0 is room for MaxRunning responses of 1,024 positions, and for one
	// of the whole context.
	CachePages int
	// PrefillRows is the number of prompt tokens that run at once; longer
	// prompts run what is over token by token. 0 is 1,024.
	PrefillRows int
	// Context is the number of positions of prompt and response at most; 0 is
	// the model's.
	Context int
	// Span, where set, hears what the engine did. It is called by the engine's
	// goroutine, and keeps nothing of the span's Seeds.
	Span func(s Span)
	// Rest, where set, hears true when the engine has run out of requests and
	// false when it has some again. It is called by the engine's goroutine.
	Rest func(resting bool)
}

// Validate reports all faults of c.
func (c *Config) Validate() error {
	var faults []error
	if c.ID == "" {
		faults = append(faults, errors.New("engine: id is empty"))
	}
	if c.MaxRunning < 1 {
		faults = append(faults, fmt.Errorf("engine %s: max running %d, expected at least 1", c.ID, c.MaxRunning))
	}
	for _, v := range []struct {
		name  string
		value int
	}{{"cache pages", c.CachePages}, {"prefill rows", c.PrefillRows}, {"context", c.Context}} {
		if v.value < 0 {
			faults = append(faults, fmt.Errorf("engine %s: %s %d, expected 0 or more", c.ID, v.name, v.value))
		}
	}
	return errors.Join(faults...)
}

// withDefaults fills what c leaves to the model.
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

// Pages is the size of the key-value cache for a model of a context.
func (c Config) Pages(context int) int { return c.withDefaults(context).CachePages }

// Rows is the number of rows that a model of a context runs at once at most.
func (c Config) Rows(context int) int {
	c = c.withDefaults(context)
	return max(c.PrefillRows, c.MaxRunning)
}

// Decoder turns token ids into text.
type Decoder interface {
	Decode(ids []int32) string
}

// Stats counts what an engine has done since it started.
type Stats struct {
	Busy        time.Duration // with work at hand
	Steps       int64         // decode steps
	Tokens      int64         // response tokens sampled
	PrefillRows int64         // prompt tokens that ran in prompts
	ReplayRows  int64         // known tokens that ran one by one
	Preemptions int64         // responses that gave way
	Running     int           // responses, now
	Waiting     int           // responses, now
	FreePages   int           // now
	CachePages  int
	Version     int64 // of the weights; 0 before the first publish
}

// Engine is an inference.Instance in this process. One goroutine, which Close
// ends, runs the model.
type Engine struct {
	cfg   Config
	vocab int
	tok   Decoder
	m     forward
	wake  chan struct{} // holds a token where the loop has something to look at
	ended chan struct{} // closed when the loop has ended

	mu       sync.Mutex
	inbox    []*group
	orders   []*order
	closing  bool
	stats    Stats
	closeErr error // of the device, set before ended is closed

	// What follows belongs to the loop.
	groups   []*group    // in the order of their requests
	running  []*sequence // rows of the next step
	rows     int         // of running that have not just left
	pages    pages
	serves   bool // has weights
	version  int64
	checksum string
	order    int64 // of the last request
	acc      Stats // Busy, Steps … so far
	buf      buffers
	decode   Span // that is open; its Start is zero where none is
}

// Span is a piece of an engine's work.
type Span struct {
	// Name is "prefill" of a batch of prompts, "decode" of steps in a row, a second
	// of them at most, "publish" where it takes weights, and "idle".
	Name     string
	Start    time.Time
	Duration time.Duration
	Tokens   int      // that ran through the model
	Seeds    []uint64 // of the requests whose prompts ran, or of which a response ended
}

// order is a publish on its way to the loop.
type order struct {
	ctx      context.Context
	weights  inference.Weights
	checksum string
	done     chan error
}

// New starts an engine on dev, which it owns and closes; where New fails, dev
// stays the caller's. tok may be nil: completions have no text then, and stop
// strings are refused. The engine refuses requests until the first Publish.
func New(cfg Config, mc *model.Config, tok Decoder, dev npu.Device) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(mc.MaxPositions)
	m, err := newRunner(dev, mc, cfg.Rows(mc.MaxPositions), cfg.CachePages)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", cfg.ID, err)
	}
	return start(cfg, mc.VocabSize, tok, m), nil
}

// start runs the loop over m; cfg is complete.
func start(cfg Config, vocab int, tok Decoder, m forward) *Engine {
	e := newEngine(cfg, vocab, tok, m)
	go e.loop()
	return e
}

func newEngine(cfg Config, vocab int, tok Decoder, m forward) *Engine {
	e := &Engine{
		cfg: cfg, vocab: vocab, tok: tok, m: m,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		pages: newPages(cfg.CachePages), buf: newBuffers(&cfg),
		running: make([]*sequence, 0, cfg.MaxRunning),
	}
	e.stats = Stats{CachePages: cfg.CachePages, FreePages: cfg.CachePages}
	return e
}

// ID is the configured name.
func (e *Engine) ID() string { return e.cfg.ID }

// Capacity is the number of responses that one step runs.
func (e *Engine) Capacity() int { return e.cfg.MaxRunning }

// Stats is what the engine has done up to its last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// Generate samples req.N responses. Errors wrap inference.ErrInvalid where the
// request can never be served, inference.ErrStale where the engine holds, or
// has got meanwhile, other weights, and inference.ErrClosed.
func (e *Engine) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	g, err := e.newGroup(ctx, req)
	if err == nil {
		err = e.submit(g)
	}
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", e.cfg.ID, err)
	}
	if err := e.wait(g); err != nil {
		return nil, err
	}
	return g.completions(e.tok), nil
}

// submit hands g to the loop.
func (e *Engine) submit(g *group) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return inference.ErrClosed
	}
	e.inbox = append(e.inbox, g)
	e.poke()
	return nil
}

// wait returns when g is done, or when its caller leaves: the loop sees that too
// and frees the pages.
func (e *Engine) wait(g *group) error {
	select {
	case <-g.done:
	case <-g.ctx.Done():
		return context.Cause(g.ctx)
	case <-e.ended:
		return fmt.Errorf("engine %s: %w", e.cfg.ID, inference.ErrClosed)
	}
	if g.err != nil {
		return fmt.Errorf("engine %s: %w", e.cfg.ID, g.err)
	}
	return nil
}

// Publish takes w, a *model.Snapshot or what has the same Weights method, at
// the next step boundary. Requests that have started under older weights, and
// those that ask for them, end with inference.ErrStale; no cache survives. Version
// 0 is weights that nobody asks for by number. The weights are read where they are:
// they must not change until a later Publish or Close has returned.
func (e *Engine) Publish(ctx context.Context, w inference.Weights) (string, error) {
	o := &order{ctx: ctx, weights: w, checksum: w.Checksum(), done: make(chan error, 1)}
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return "", fmt.Errorf("engine %s: %w", e.cfg.ID, inference.ErrClosed)
	}
	e.orders = append(e.orders, o)
	e.mu.Unlock()
	e.poke()
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

// Close ends all requests with inference.ErrClosed, waits for the loop and
// closes the device.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.poke()
	<-e.ended
	return e.closeErr
}

// poke makes the loop look at what is new.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

package server

import (
	"bufio"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/answer"
	"github.com/easyrl/easyrl/inference/server/internal/feed"
	"github.com/easyrl/easyrl/inference/server/internal/job"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// completions answers completion and chat requests.
type completions struct {
	ctx      context.Context // the server's
	backend  Backend
	text     Text // may be nil
	bodies   *bodies
	gate     *gate
	served   *counters
	slots    chan struct{} // one per request in the backend
	maxQueue int
	waiting  atomic.Int64 // requests waiting for a slot
}

// modelOf describes the backend's model to package job.
func modelOf(backend Backend, text Text, b *bodies) *job.Model {
	info := backend.Info()
	return &job.Model{ID: backend.ID(), Context: info.Context, Vocab: info.Vocab, Text: text, Held: backend.Held, Alone: b.alone}
}

// complete answers a completion or chat request.
func (c *completions) complete(ctx *fasthttp.RequestCtx, chat bool) error {
	if err := c.gate.begin(ctx); err != nil {
		return err
	}
	ended := c.gate.finish
	defer func() { ended() }()
	data, release, err := c.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := job.Decode(data, chat)
	if err != nil {
		return err
	}
	j, err := modelOf(c.backend, c.text, c.bodies).Prepare(r)
	if err != nil {
		return err
	}
	reqCtx, stop := c.watch(ctx)
	if j.Stream {
		ended = func() {} // the stream calls finish
		return c.stream(reqCtx, ctx, j, func() { stop(); c.gate.finish() })
	}
	defer stop()
	out, err := c.run(reqCtx, j, nil)
	if err != nil {
		return err
	}
	answer.New(c.backend.ID(), c.text, j).Write(ctx, out)
	return nil
}

// enter waits for a slot of the backend.
func (c *completions) enter(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > int64(c.maxQueue) {
		return &reply.Failure{Status: fasthttp.StatusTooManyRequests, Kind: "rate_limit_error", Code: "queue_full",
			Message: fmt.Sprintf("the queue is full: %d requests are running and %d are waiting", cap(c.slots), c.maxQueue), Retry: true}
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run samples all choices. If emit is not nil, it receives tokens as they are sampled,
// from several goroutines, with the choice as Delta.Index.
func (c *completions) run(ctx context.Context, j *job.Job, emit func(inference.Delta)) ([]inference.Completion, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-c.slots }()
	start := time.Now()
	out := make([]inference.Completion, len(j.Prompts)*j.N)
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	for p := range j.Prompts {
		tasks.Go(func(ctx context.Context) error {
			got, err := c.prompt(ctx, j, p, emit)
			if err == nil {
				copy(out[p*j.N:], got)
			}
			return err
		})
	}
	err := tasks.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = j.Check(out)
	}
	c.served.count(out, err, time.Since(start))
	if err != nil {
		return nil, err
	}
	return out, nil
}

// prompt samples the choices of one prompt.
func (c *completions) prompt(ctx context.Context, j *job.Job, p int, emit func(inference.Delta)) ([]inference.Completion, error) {
	req := j.Each
	req.PromptIDs = j.Prompts[p]
	var out []inference.Completion
	var err error
	if emit == nil {
		out, err = c.backend.Generate(ctx, req)
	} else {
		out, err = c.backend.Stream(ctx, req, func(d inference.Delta) {
			d.Index += p * j.N
			emit(d)
		})
	}
	switch {
	case err != nil:
		return nil, err
	case len(out) != req.N:
		return nil, fmt.Errorf("backend returned %d responses, expected %d", len(out), req.N)
	}
	return out, nil
}

// watch returns a context for ctx's request that ends when the client disconnects or the
// server closes.
func (c *completions) watch(ctx *fasthttp.RequestCtx) (context.Context, func()) {
	conn, ok := ctx.Conn().(*wire.Conn)
	if !ok {
		return context.WithCancel(c.ctx)
	}
	return conn.Watch(c.ctx)
}

// stream answers j with server-sent events. A request that fails before its first token
// is refused with a status. An HTTP/1.0 client, which does not support chunks, gets all
// events at the end. done is called after all work has ended.
func (c *completions) stream(reqCtx context.Context, ctx *fasthttp.RequestCtx, j *job.Job, done func()) error {
	f := feed.New()
	runCtx, cancel := context.WithCancelCause(reqCtx)
	var sampling sync.WaitGroup
	sampling.Go(func() { f.End(c.run(runCtx, j, f.Add)) })
	<-f.Ready
	deltas, ended, err := f.Take()
	if err != nil {
		cancel(nil)
		sampling.Wait()
		done()
		return err
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-cache")
	send := func(w *bufio.Writer) {
		defer done()
		defer sampling.Wait()
		defer cancel(nil)
		out := answer.New(c.backend.ID(), c.text, j).NewStream(w)
		for {
			for _, d := range deltas {
				out.Delta(d)
			}
			if ended {
				out.End(f.Out, err)
			}
			if w.Flush() != nil {
				cancel(wire.ErrGone)
				return
			}
			if ended {
				return
			}
			<-f.Ready
			deltas, ended, err = f.Take()
		}
	}
	if ctx.Request.Header.IsHTTP11() {
		ctx.SetBodyStreamWriter(send)
	} else {
		send(bufio.NewWriter(ctx.Response.BodyWriter()))
	}
	return nil
}

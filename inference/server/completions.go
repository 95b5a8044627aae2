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
	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// completions answers completion and chat requests.
type completions struct {
	ctx      context.Context // ends with the server
	backend  Backend
	model    *api.Model // set by Serve
	bodies   *bodies
	gate     *gate
	served   *counters
	slots    chan struct{} // holds an element per request in the backend; its capacity is the limit
	maxQueue int           // maximum of waiting
	waiting  atomic.Int64  // number of requests that wait for a slot
}

// ofText answers a text completion request.
func (c *completions) ofText(ctx *fasthttp.RequestCtx) error {
	return c.complete(ctx, func(data []byte) (*api.Request, error) { return api.Decode(data, false) })
}

// ofChat answers a chat request.
func (c *completions) ofChat(ctx *fasthttp.RequestCtx) error {
	return c.complete(ctx, func(data []byte) (*api.Request, error) { return api.Decode(data, true) })
}

// ofIDs answers a request with a prompt of token IDs.
func (c *completions) ofIDs(ctx *fasthttp.RequestCtx) error {
	return c.complete(ctx, api.DecodeGenerate)
}

// complete answers a request whose body decode decodes.
func (c *completions) complete(ctx *fasthttp.RequestCtx, decode func(data []byte) (*api.Request, error)) error {
	if err := c.gate.begin(ctx); err != nil {
		return err
	}
	finish := c.gate.finish
	defer func() { finish() }()
	data, release, err := c.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := decode(data)
	if err != nil {
		return err
	}
	j, err := c.model.Prepare(r)
	if err != nil {
		return err
	}
	reqCtx, stop := c.watch(ctx)
	w := c.model.NewWriter(j)
	if j.Stream || j.StreamChoices {
		finish = func() {} // done calls it when the stream ends
		done := func() { stop(); c.gate.finish() }
		if j.Stream {
			return c.streamTokens(reqCtx, ctx, j, w, done)
		}
		return c.streamChoices(reqCtx, ctx, j, w, done)
	}
	defer stop()
	out, err := c.run(reqCtx, j, listener{})
	if err != nil {
		return err
	}
	ctx.SetContentType("application/json")
	return w.Write(ctx, out)
}

// listener receives parts of an answer while it is sampled. Its functions are called from several
// goroutines; either may be nil. The indices are those of choices. A Delta's slices are valid until
// delta returns.
type listener struct {
	delta func(d inference.Delta)
	ended func(index int, c inference.Completion)
}

// enter waits for a slot of the backend. It returns a 429 if too many requests wait already, or the
// cause of ctx. After a nil error the caller must take an element out of slots when it is done.
func (c *completions) enter(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > int64(c.maxQueue) {
		return &api.Failure{Status: fasthttp.StatusTooManyRequests, Kind: "rate_limit_error", Code: "queue_full",
			Message: fmt.Sprintf("the queue is full: %d requests are running and %d are waiting", cap(c.slots),
				c.maxQueue), Retry: true}
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run samples all choices of j. l receives parts of them meanwhile.
func (c *completions) run(ctx context.Context, j *api.Job, l listener) ([]inference.Completion, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-c.slots }()
	start := time.Now()
	out := make([]inference.Completion, len(j.Prompts)*j.N)
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	for p := range j.Prompts {
		tasks.Go(func(ctx context.Context) error {
			got, err := c.prompt(ctx, j, p, l)
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

// prompt samples the choices of prompt p.
func (c *completions) prompt(ctx context.Context, j *api.Job, p int, l listener) ([]inference.Completion, error) {
	req := j.Each
	req.PromptIDs = j.Prompts[p]
	if l.ended != nil {
		req.Ended = func(index int, got inference.Completion) { l.ended(index+p*j.N, got) }
	}
	var out []inference.Completion
	var err error
	if l.delta == nil {
		out, err = c.backend.Generate(ctx, req)
	} else {
		out, err = c.backend.Stream(ctx, req, func(d inference.Delta) {
			d.Index += p * j.N
			l.delta(d)
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

// watch returns a context that ends when the client of ctx disconnects or the server closes. The
// caller must call the function exactly once, before anything else is read from the connection.
func (c *completions) watch(ctx *fasthttp.RequestCtx) (context.Context, func()) {
	conn, ok := ctx.Conn().(*wire.Conn)
	if !ok {
		return context.WithCancel(c.ctx)
	}
	return conn.Watch(c.ctx)
}

// streamTokens answers j with server-sent events. It ensures that done is called once, after all
// work for j has ended, even if it returns an error.
func (c *completions) streamTokens(
	reqCtx context.Context, ctx *fasthttp.RequestCtx, j *api.Job, w *api.Writer, done func(),
) error {
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-cache")
	f := newFeed[inference.Delta]()
	return stream(reqCtx, ctx, f, func(ctx context.Context) ([]inference.Completion, error) {
		return c.run(ctx, j, listener{delta: func(d inference.Delta) { f.add(copyOf(d)) }})
	}, func(out *bufio.Writer) partWriter[inference.Delta] { return w.NewStream(out) }, done)
}

// streamChoices answers j with a line of JSON for each choice as it ends. It calls done as
// streamTokens does.
func (c *completions) streamChoices(
	reqCtx context.Context, ctx *fasthttp.RequestCtx, j *api.Job, w *api.Writer, done func(),
) error {
	ctx.SetContentType("application/x-ndjson")
	f := newFeed[api.Ended]()
	return stream(reqCtx, ctx, f, func(ctx context.Context) ([]inference.Completion, error) {
		return c.run(ctx, j, listener{ended: func(index int, got inference.Completion) {
			if j.CheckNumbers(index, &got) == nil { // otherwise run returns the error
				f.add(api.Ended{Index: index, Completion: got})
			}
		}})
	}, func(out *bufio.Writer) partWriter[api.Ended] { return w.NewChoices(out) }, done)
}

// partWriter writes an answer in parts. It is an *api.Stream or *api.Choices.
type partWriter[T any] interface {
	Part(part T)
	End(out []inference.Completion, f *api.Failure)
}

// stream answers with the parts that run adds to from, as they come. open returns the writer of
// the parts. A request that fails before its first part is answered with an HTTP status. An
// HTTP/1.0 client, which does not support chunks, gets all parts at the end.
//
// run works in its own goroutine. stream returns after the first part; fasthttp then calls send,
// which writes the rest. stream or send calls done after run has returned.
func stream[T any](
	reqCtx context.Context, ctx *fasthttp.RequestCtx, from *feed[T],
	run func(ctx context.Context) ([]inference.Completion, error),
	open func(out *bufio.Writer) partWriter[T], done func(),
) error {
	runCtx, cancel := context.WithCancelCause(reqCtx)
	var sampling sync.WaitGroup
	sampling.Go(func() { from.end(run(runCtx)) })
	<-from.ready
	parts, ended, err := from.take()
	if err != nil {
		cancel(nil)
		sampling.Wait()
		done()
		return err
	}
	send := func(w *bufio.Writer) {
		defer done()
		defer sampling.Wait()
		defer cancel(nil)
		out := open(w)
		for {
			for _, part := range parts {
				out.Part(part)
			}
			if ended {
				var f *api.Failure
				if err != nil {
					f = failureOf(err)
				}
				out.End(from.out, f)
			}
			if w.Flush() != nil {
				cancel(wire.ErrGone)
				return
			}
			if ended {
				return
			}
			<-from.ready
			parts, ended, err = from.take()
		}
	}
	if ctx.Request.Header.IsHTTP11() {
		ctx.SetBodyStreamWriter(send)
	} else {
		send(bufio.NewWriter(ctx.Response.BodyWriter()))
	}
	return nil
}

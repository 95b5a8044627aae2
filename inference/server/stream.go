package server

import (
	"bufio"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/feed"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// watch is the context of ctx's request: it ends when the client goes or the
// server closes.
func (s *Server) watch(ctx *fasthttp.RequestCtx) (context.Context, func()) {
	c, ok := ctx.Conn().(*wire.Conn)
	if !ok {
		return context.WithCancel(s.ctx)
	}
	return c.Watch(s.ctx)
}

// stream answers j with server-sent events. A request that fails before its
// first token is refused with a status. A client of HTTP/1.0, which knows no
// chunks, gets all events at the end. done is called when all has ended.
func (s *Server) stream(reqCtx context.Context, ctx *fasthttp.RequestCtx, j *job, done func()) error {
	f := feed.New()
	runCtx, cancel := context.WithCancelCause(reqCtx)
	var sampling sync.WaitGroup
	sampling.Go(func() { f.End(s.run(runCtx, j, f.Add)) })
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
		out := &sender{s: s, j: j, w: w, choices: make([]sent, len(j.prompts)*j.n)}
		for {
			for _, d := range deltas {
				out.delta(d)
			}
			if ended {
				out.end(f.Out, err)
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

// sender writes a stream's events.
type sender struct {
	s       *Server
	j       *job
	w       *bufio.Writer
	choices []sent
	tokens  int // that went out
	// What the first event said of the weights; the checksum is empty before it.
	version  int64
	checksum string
}

// sent is what has gone out of a choice.
type sent struct {
	begun  bool
	ids    int    // tokens
	out    int    // bytes of text that went out
	held   string // text behind them
	offset int    // characters of tokens
}

// event writes one event. Errors stay in w.
func (o *sender) event(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		data = []byte(notJSON)
	}
	_, _ = o.w.WriteString("data: ")
	_, _ = o.w.Write(data)
	_, _ = o.w.WriteString("\n\n")
}

// chunk sends parts of choices.
func (o *sender) chunk(usage bool, parts ...openai.Choice) {
	object := "text_completion"
	if o.j.chat {
		object = "chat.completion.chunk"
	}
	a := o.s.start(o.j, object, o.version, o.checksum)
	a.Choices = append(a.Choices, parts...)
	if usage {
		a.Usage = o.j.usageOf(o.tokens)
	}
	o.event(a)
}

// delta sends what d brings. What ends the response is held back: it may not be
// a part of the text.
func (o *sender) delta(d inference.Delta) {
	if *o.j.maxTokens == 0 {
		return
	}
	if o.checksum == "" {
		o.version, o.checksum = d.Version, d.Checksum
	}
	st := &o.choices[d.Index]
	st.held += d.Text
	text := st.held
	if n := len(d.IDs); n > 0 && slices.Contains(o.j.each.Sampling.StopIDs, d.IDs[n-1]) {
		text = ""
	}
	if before, _, ok := cut(st.held, o.j.stop, o.j.includeStop); ok { // none begins in what went out
		text = text[:min(len(text), len(before))]
	}
	st.held = st.held[len(text):]
	st.out += len(text)
	if len(d.IDs) > 0 || text != "" {
		d.Text = text
		o.part(d, nil)
	}
}

// part sends tokens and text of a choice, and how it ended where it did.
func (o *sender) part(d inference.Delta, e *ending) {
	j, st := o.j, &o.choices[d.Index]
	index, ids, text := d.Index, d.IDs, d.Text
	c := openai.Choice{Index: index}
	if j.returnIDs {
		c.IDs = ids
	}
	if j.chat {
		if !st.begun {
			empty := ""
			o.chunk(j.usageSoFar, openai.Choice{Index: index, Delta: &openai.Delta{Role: "assistant", Content: &empty}})
		}
		c.Delta = &openai.Delta{Content: &text}
		if j.logprobs != nil && len(ids) > 0 {
			c.Logprobs = o.s.chatEntries(j, ids, d.Logprobs, d.Top)
		}
	} else {
		if !st.begun && j.returnIDs {
			c.PromptIDs = j.prompts[index/j.n]
		}
		if !st.begun && j.echo {
			text = j.texts[index/j.n] + text
			st.offset = utf8.RuneCountInString(j.texts[index/j.n])
		}
		c.Text = &text
		if j.logprobs != nil && len(ids) > 0 {
			c.Logprobs, st.offset = o.s.textEntries(j, ids, d.Logprobs, d.Top, st.offset)
		}
	}
	st.begun = true
	st.ids += len(ids)
	o.tokens += len(ids)
	if e != nil {
		c.Finish, c.Stop = &e.reason, e.stop
	}
	o.chunk(j.usageSoFar, c)
}

// end sends what is left of each choice and how it ended, or the error that
// ended them all.
func (o *sender) end(out []inference.Completion, err error) {
	if err == nil && o.checksum == "" {
		o.version, o.checksum = out[0].Version, out[0].Checksum
	}
	if err == nil && out[0].Checksum != o.checksum {
		err = stale("the weights changed to others than those of version %d that the answer began with", o.version)
	}
	if err != nil {
		o.event(asFailure(err).body())
		return
	}
	for i := range out {
		c, st := &out[i], &o.choices[i]
		if *o.j.maxTokens == 0 {
			*c = inference.Completion{Finish: "length"}
			st.ids = 0
		}
		e := o.s.end(o.j, c)
		rest := min(st.ids, len(c.IDs))
		o.part(inference.Delta{Index: i, IDs: c.IDs[rest:], Logprobs: c.Logprobs[rest:], Top: c.Top[min(rest, len(c.Top)):],
			Text: e.text[min(st.out, len(e.text)):]}, &e)
	}
	if o.j.usage {
		o.chunk(true)
	}
	_, _ = o.w.WriteString("data: [DONE]\n\n")
}

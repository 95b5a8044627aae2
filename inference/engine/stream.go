package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/easyrl/easyrl/inference"
)

var _ inference.Streamer = (*Engine)(nil)

// feed carries a group's samples from the loop to the streaming caller. The loop
// never waits: tokens that arrive while the caller is busy are merged into one
// Delta.
type feed struct {
	wake chan struct{} // holds a token if samples have been added since the last wake
	mu   sync.Mutex
	news []news // one per response
}

// news is what was sampled for a response since the last take.
type news struct {
	ids   []int32
	logp  []float32
	top   [][]inference.TokenLogprob
	ended bool // the response ended with the last of ids
}

func newFeed(n int) *feed { return &feed{wake: make(chan struct{}, 1), news: make([]news, n)} }

// add records s's last token and whether it ended the response.
func (f *feed) add(s *sequence, ended bool) {
	f.mu.Lock()
	n, last := &f.news[s.index], len(s.ids)-1
	n.ids, n.logp, n.ended = append(n.ids, s.ids[last]), append(n.logp, s.logp[last]), ended
	if s.top != nil {
		n.top = append(n.top, s.top[last])
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take moves a response's news into to, reusing its memory.
func (f *feed) take(index int, to news) news {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &f.news[index]
	to.ids, to.logp, to.top, to.ended = append(to.ids[:0], n.ids...), append(to.logp[:0], n.logp...),
		append(to.top[:0], n.top...), n.ended
	n.ids, n.logp, n.top = n.ids[:0], n.logp[:0], n.top[:0]
	return to
}

// Stream is Generate with incremental output: it calls emit, on the calling
// goroutine, with each response's new tokens. The concatenated texts of a
// response equal its Completion.Text. Some tokenizers revise earlier text, for
// example if a response is cut within a character; Completion.Text is then the
// text that was emitted.
func (e *Engine) Stream(ctx context.Context, req inference.Request, emit func(inference.Delta)) (
	[]inference.Completion, error) {
	g, err := e.newGroup(ctx, req)
	if err == nil {
		g.feed = newFeed(req.N)
		err = e.mailbox.submit(g)
	}
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", e.cfg.ID, err)
	}
	t := emitter{of: g, emit: emit, tails: make([]tail, req.N)}
	for i := range t.tails {
		t.tails[i] = tail{tok: e.tok, stops: req.Sampling.Stop}
	}
	for running := true; running; {
		select {
		case <-g.feed.wake:
			t.flush()
		case <-g.done:
			running = false
		case <-ctx.Done():
			running = false
		case <-e.ended:
			running = false
		}
	}
	if err := e.wait(g); err != nil {
		return nil, err
	}
	t.flush()
	out := g.completions(e.tok)
	for i := range out {
		out[i].Text = t.tails[i].emitted.String()
	}
	return out, nil
}

// emitter turns a feed into Deltas.
type emitter struct {
	of    *group
	emit  func(inference.Delta)
	tails []tail // one per response
	got   news
}

func (t *emitter) flush() {
	for i := range t.tails {
		t.got = t.of.feed.take(i, t.got)
		if len(t.got.ids) == 0 {
			continue
		}
		d := inference.Delta{Index: i, IDs: t.got.ids, Logprobs: t.got.logp,
			Text:    t.tails[i].add(t.got.ids, t.got.ended),
			Version: t.of.version, Checksum: t.of.checksum} // set before the first token arrives
		if len(t.got.top) > 0 {
			d.Top = t.got.top
		}
		t.emit(d)
	}
}

// tail is the end of a response's text, part of which is not final yet. It
// decodes only the last tokens, so that the cost per token does not grow with the
// response. The window includes the tokens emitted just before, because a
// tokenizer may render a token differently at the start of a text.
type tail struct {
	tok     Decoder
	stops   []string
	ids     []int32
	window  []int32 // the last ids; emitted or held contains the text of the first read of them
	read    int
	held    string
	emitted strings.Builder
}

// add returns the text that ids made final, or all remaining text if the response
// has ended.
func (t *tail) add(ids []int32, ended bool) string {
	if t.tok == nil {
		return ""
	}
	t.ids = append(t.ids, ids...)
	if ended {
		return t.rest(ids)
	}
	for _, id := range ids {
		t.step(id)
	}
	n := len(t.held) - mayStop(t.held, t.stops)
	out := t.held[:n]
	t.held = t.held[n:]
	t.emitted.WriteString(out)
	return out
}

// patience is the number of tokens after which tail stops waiting: for a
// replacement character to become part of another one, and for an empty start of
// the text to become non-empty.
const patience = 64

// step decodes one more token and holds its text.
func (t *tail) step(id int32) {
	t.window = append(t.window, id)
	before, text := t.tok.Decode(t.window[:t.read]), t.tok.Decode(t.window)
	late := len(t.window)-t.read > patience
	switch {
	case text == before && (before != "" || late):
		t.window = t.window[:len(t.window)-1] // a special token without text
	case len(text) <= len(before) && strings.HasPrefix(before, text) || cutShort(text, late):
	default:
		more, ok := strings.CutPrefix(text, before)
		if !ok { // the new tokens changed earlier text
			more = t.tok.Decode(t.window[t.read:])
		}
		t.held += more
		t.window = append(t.window[:0], t.window[t.read:]...)
		t.read = len(t.window)
	}
}

// rest returns the text of an ended response that was not emitted yet. ids are
// its last tokens.
func (t *tail) rest(ids []int32) string {
	out, ok := strings.CutPrefix(t.tok.Decode(t.ids), t.emitted.String())
	if !ok {
		for _, id := range ids {
			t.step(id)
		}
		out = t.held + t.tok.Decode(t.window[t.read:])
	}
	t.emitted.WriteString(out)
	return out
}

// cutShort reports whether text ends within a character or, unless late, with the
// replacement character that decoders emit for an incomplete one.
func cutShort(text string, late bool) bool {
	for i := 1; i <= min(len(text), utf8.UTFMax); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			return !utf8.FullRuneInString(last) || last == "\uFFFD" && !late
		}
	}
	return false
}

// mayStop returns the length of the longest suffix of text that is a proper
// prefix of a stop string.
func mayStop(text string, stops []string) int {
	longest := 0
	for _, stop := range stops {
		for n := min(len(text), len(stop)-1); n > longest; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

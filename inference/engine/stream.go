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
// never waits for the caller: tokens that arrive while the caller is busy are merged into one
// Delta.
type feed struct {
	wake chan struct{} // has room for one token, which is there if samples have been added since the caller woke
	mu   sync.Mutex
	news []news // per response; guarded by mu
}

// news has the tokens of a response that were sampled since the last take.
type news struct {
	ids   []int32
	logp  []float32
	top   [][]inference.TokenLogprob
	ended bool // the response ended with the last of ids
}

// newFeed returns an empty feed for n responses.
func newFeed(n int) *feed { return &feed{wake: make(chan struct{}, 1), news: make([]news, n)} }

// add records s's last token and whether it ended the response.
func (f *feed) add(s *sequence, ended bool) {
	f.mu.Lock()
	n := &f.news[s.index]
	last := len(s.ids) - 1
	n.ids = append(n.ids, s.ids[last])
	n.logp = append(n.logp, s.logp[last])
	n.ended = ended
	if s.top != nil {
		n.top = append(n.top, s.top[last])
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take moves a response's news out of the feed. It returns them in the memory of reuse.
func (f *feed) take(index int, reuse news) news {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &f.news[index]
	out := news{ids: append(reuse.ids[:0], n.ids...), logp: append(reuse.logp[:0], n.logp...),
		top: append(reuse.top[:0], n.top...), ended: n.ended}
	n.ids, n.logp, n.top = n.ids[:0], n.logp[:0], n.top[:0]
	return out
}

// Stream is Generate with incremental output: it calls emit, on the calling goroutine, with each
// response's new tokens. Completion.Text is the concatenation of the texts of a response's Deltas. It
// differs from the text that Generate returns only if the tokenizer revises earlier text, for example
// when a response is cut within a character.
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
	t := emitter{group: g, emit: emit, tails: make([]tail, req.N)}
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
	if err := e.wait(g); err != nil { // returns at once, with the reason for which the loop above ended
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
	group *group
	emit  func(inference.Delta)
	tails []tail // per response
	got   news   // the slices of the current Delta; reused
}

// flush emits a Delta for each response with news.
func (t *emitter) flush() {
	for i := range t.tails {
		t.got = t.group.feed.take(i, t.got)
		if len(t.got.ids) == 0 {
			continue
		}
		d := inference.Delta{Index: i, IDs: t.got.ids, Logprobs: t.got.logp,
			Text:    t.tails[i].add(t.got.ids, t.got.ended),
			Version: t.group.version, Checksum: t.group.checksum}
		if len(t.got.top) > 0 {
			d.Top = t.got.top
		}
		t.emit(d)
	}
}

// tail turns the tokens of a response into text. It emits the text that later tokens cannot change.
//
// It decodes only a window of the last tokens, so that the cost per token does not grow with the
// response. The text of a new token is the text of the window minus that of its known part, the
// tokens before: decoding the new token by itself may give other text, because tokenizers treat the
// start of a text differently.
type tail struct {
	tok     Decoder  // nil without a tokenizer
	stops   []string // stop strings
	ids     []int32  // all tokens
	window  []int32  // the last of ids
	known   int      // number of tokens at the start of window whose text is in emitted or held
	held    string   // text that follows emitted and may contain the start of a stop string
	emitted strings.Builder
}

// add adds tokens and returns the text to emit: the text that they made final, or all remaining text
// if the response has ended.
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

// patience is the number of tokens for which tail waits for a replacement character to become part of
// another character, and for the text of a new window to become non-empty.
const patience = 64

// step adds one token to the window. Unless its text is incomplete, step moves the text of the
// window's new tokens to held and makes them the known part of the next window.
func (t *tail) step(id int32) {
	t.window = append(t.window, id)
	before := t.tok.Decode(t.window[:t.known])
	text := t.tok.Decode(t.window)
	late := len(t.window)-t.known > patience
	addsNothing := len(text) <= len(before) && strings.HasPrefix(before, text)
	switch {
	case text == before && (before != "" || late):
		t.window = t.window[:len(t.window)-1] // a special token without text
	case addsNothing || cutShort(text, late): // wait for the next token
	default:
		more, ok := strings.CutPrefix(text, before)
		if !ok { // the new tokens changed earlier text
			more = t.tok.Decode(t.window[t.known:])
		}
		t.held += more
		t.window = append(t.window[:0], t.window[t.known:]...)
		t.known = len(t.window)
	}
}

// rest returns the text of an ended response that was not emitted yet. ids are the last tokens, which
// step has not seen.
func (t *tail) rest(ids []int32) string {
	out, ok := strings.CutPrefix(t.tok.Decode(t.ids), t.emitted.String())
	if !ok {
		for _, id := range ids {
			t.step(id)
		}
		out = t.held + t.tok.Decode(t.window[t.known:])
	}
	t.emitted.WriteString(out)
	return out
}

// cutShort reports whether text ends within a UTF-8 character or, unless late is set, with the
// replacement character that decoders write for an incomplete character.
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

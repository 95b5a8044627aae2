// Package answer writes completions as OpenAI and vLLM do, whole or as a stream of
// events.
package answer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/job"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/rollout"
)

// lowestLogprob replaces lower log-probabilities, because JSON cannot represent -Inf.
// Only alternatives need it: sampled tokens have finite log-probabilities.
const lowestLogprob = -9999

// Tokenizer turns tokens into text.
type Tokenizer interface {
	// Decode returns the text of ids, without special tokens.
	Decode(ids []int32) string
	// Piece returns the text of one token, or the name of a special one.
	Piece(id int32) (piece string, special bool)
}

// Writer writes the answer to one job.
type Writer struct {
	model     string
	tokenizer Tokenizer // may be nil
	job       *job.Job
}

// New returns a Writer for a job of the named model. If tokenizer is nil, tokens are named
// by their IDs.
func New(model string, tokenizer Tokenizer, j *job.Job) *Writer { return &Writer{model, tokenizer, j} }

// piece returns the text or name of a token, or token_id:ID if the request asks for IDs or
// there is no tokenizer.
func (w *Writer) piece(id int32) string {
	if w.job.TokensAsIDs || w.job.Generate || w.tokenizer == nil {
		return "token_id:" + strconv.Itoa(int(id))
	}
	text, _ := w.tokenizer.Piece(id)
	return lossy.String(text)
}

// textEntries returns the log-probabilities of tokens in the form of text completions. The
// tokens' text begins at offset in the text of the choice and ends at next, in characters.
// Special tokens have no text.
func (w *Writer) textEntries(ids []int32, logprobs []float32, top [][]inference.TokenLogprob, offset int) (entries openai.TextLogprobs, next int) {
	entries = openai.TextLogprobs{Offsets: []int{}, Logprobs: []any{}, Tokens: []string{}, Top: []map[string]float32{}}
	for i, id := range ids {
		token := w.piece(id)
		likeliest := map[string]float32{token: logprobs[i]}
		if i < len(top) {
			for _, t := range top[i] {
				name := w.piece(t.ID)
				if _, ok := likeliest[name]; !ok { // of tokens with the same text, keep the sampled one, or else the likeliest
					likeliest[name] = max(t.Logprob, lowestLogprob)
				}
			}
		}
		entries.Offsets = append(entries.Offsets, offset)
		entries.Logprobs = append(entries.Logprobs, logprobs[i])
		entries.Tokens = append(entries.Tokens, token)
		entries.Top = append(entries.Top, likeliest)
		if w.tokenizer == nil {
			continue
		}
		if text, special := w.tokenizer.Piece(id); !special {
			offset += utf8.RuneCountInString(text)
		}
	}
	return entries, offset
}

// chatEntries returns the log-probabilities of tokens in the form of chat completions.
func (w *Writer) chatEntries(ids []int32, logprobs []float32, top [][]inference.TokenLogprob) openai.ChatLogprobs {
	entry := func(id int32, logprob float32) openai.TokenLogprob {
		e := openai.TokenLogprob{Token: w.piece(id), Logprob: max(logprob, lowestLogprob)}
		if w.tokenizer != nil {
			e.Bytes = []int{}
			text, _ := w.tokenizer.Piece(id)
			for _, b := range []byte(text) {
				e.Bytes = append(e.Bytes, int(b))
			}
		}
		return e
	}
	out := openai.ChatLogprobs{Content: []openai.TokenLogprob{}}
	for i, id := range ids {
		e := entry(id, logprobs[i])
		e.Top = &[]openai.TokenLogprob{}
		if i < len(top) {
			for _, t := range top[i] {
				*e.Top = append(*e.Top, entry(t.ID, t.Logprob))
			}
		}
		out.Content = append(out.Content, e)
	}
	return out
}

// header returns the fields that whole answers and chunks share.
func (w *Writer) header(object string, version int64, checksum string) openai.Answer {
	return openai.Answer{ID: w.job.ID, Object: object, Created: w.job.Created, Model: w.model, Version: version, Checksum: checksum, Choices: []openai.Choice{}}
}

// Write sends out as the response of ctx. It encodes one choice at a time and then clears
// its element of out, because the JSON of a choice takes many times the memory of its
// numbers.
func (w *Writer) Write(ctx *fasthttp.RequestCtx, out []inference.Completion) {
	const list = `"choices":[`
	reply.JSON(ctx, fasthttp.StatusOK, w.frame(out))
	before, after, _ := bytes.Cut(bytes.Clone(ctx.Response.Body()), []byte(list))
	ctx.SetBody(before)
	between := list
	for i := range out {
		data, err := json.Marshal(w.choice(i, &out[i]))
		if err != nil {
			reply.Refuse(ctx, err)
			return
		}
		out[i] = inference.Completion{}
		ctx.Response.AppendBodyString(between)
		ctx.Response.AppendBody(data)
		between = ","
	}
	ctx.Response.AppendBody(after)
}

// frame returns a whole answer except its choices.
func (w *Writer) frame(out []inference.Completion) openai.Answer {
	object := "text_completion"
	if w.job.Chat {
		object = "chat.completion"
	}
	a := w.header(object, out[0].Version, out[0].Checksum)
	if w.job.Generate {
		a.ID, a.Object, a.RequestID, a.Mode = "", "", w.job.ID, "tokens"
		if w.job.PromptLogprobs != nil {
			a.PromptLogprobs = w.promptEntries(w.job.Prompts[0], &out[0])
		}
	}
	tokens := 0
	for i := range out {
		if *w.job.MaxTokens > 0 {
			tokens += len(out[i].IDs)
		}
	}
	a.Usage = usageOf(w.job, tokens)
	if w.job.ReturnIDs && (w.job.Chat || w.job.Generate) {
		a.PromptIDs = w.job.Prompts[0]
	}
	return a
}

// choice converts completion i. It clears the tokens of c if the request wants none.
func (w *Writer) choice(i int, c *inference.Completion) openai.Choice {
	if *w.job.MaxTokens == 0 { // drop the one token that the backend has to sample
		*c = inference.Completion{PromptLogprobs: c.PromptLogprobs, PromptTop: c.PromptTop, Finish: "length", Version: c.Version, Checksum: c.Checksum}
	}
	e := w.endingOf(c)
	ch := openai.Choice{Index: i, Finish: &e.reason, Stop: e.stop}
	if w.job.ReturnIDs {
		ch.IDs = c.IDs
	}
	switch {
	case w.job.Generate:
		w.fillIDs(&ch, c)
		return ch
	case w.job.Chat:
		ch.Message = w.message(&e)
		if w.job.Logprobs != nil {
			ch.Logprobs = w.chatEntries(c.IDs, c.Logprobs, c.Top)
		}
	default:
		w.fillText(&ch, c, e.text)
	}
	if w.job.PromptLogprobs != nil {
		ch.PromptLogprobs = w.promptEntries(w.job.Prompts[i/w.job.N], c)
	}
	return ch
}

// fillText sets the fields of a text completion's choice.
func (w *Writer) fillText(ch *openai.Choice, c *inference.Completion, text string) {
	prompt := w.job.Prompts[ch.Index/w.job.N]
	if w.job.ReturnIDs {
		ch.PromptIDs = prompt
	}
	ids, logprobs := c.IDs, c.Logprobs
	if w.job.Echo {
		text = w.job.Texts[ch.Index/w.job.N] + text
		ids = append(prompt[:len(prompt):len(prompt)], ids...)
		logprobs = append(c.PromptLogprobs[:len(c.PromptLogprobs):len(c.PromptLogprobs)], logprobs...)
	}
	ch.Text = &text
	if w.job.Logprobs == nil {
		return
	}
	top := c.Top
	if w.job.Echo && *w.job.Logprobs > 0 {
		top = make([][]inference.TokenLogprob, 0, len(ids))
		for _, likeliest := range c.PromptTop {
			top = append(top, likeliest[:min(len(likeliest), *w.job.Logprobs)])
		}
		top = append(top, c.Top...)
	}
	entries, _ := w.textEntries(ids, logprobs, top, 0)
	if w.job.Echo {
		entries.Logprobs[0], entries.Top[0] = nil, nil // the first token has no predecessor
	}
	ch.Logprobs = entries
}

// promptEntries returns the log-probabilities of c's prompt in vLLM's format: null for the
// first token, then an object that maps the IDs of the token and of its alternatives to
// their log-probabilities and texts.
func (w *Writer) promptEntries(ids []int32, c *inference.Completion) []any {
	type entry struct {
		Logprob float32 `json:"logprob"`
		Text    string  `json:"decoded_token"`
	}
	out := make([]any, len(ids))
	for i := 1; i < len(ids); i++ {
		at := map[int32]entry{}
		if c.PromptTop != nil {
			for _, t := range c.PromptTop[i][:min(len(c.PromptTop[i]), *w.job.PromptLogprobs)] {
				at[t.ID] = entry{max(t.Logprob, lowestLogprob), w.piece(t.ID)}
			}
		}
		at[ids[i]] = entry{c.PromptLogprobs[i], w.piece(ids[i])}
		out[i] = at
	}
	return out
}

// usageOf returns the usage of j with an answer of that many tokens.
func usageOf(j *job.Job, tokens int) *openai.Usage {
	u := &openai.Usage{Answer: tokens}
	for _, p := range j.Prompts {
		u.Prompt += len(p)
	}
	u.Total = u.Prompt + u.Answer
	return u
}

// ending describes how a response ended, as clients see it.
type ending struct {
	text   string
	reason string
	stop   any // the stop string or token that ended it, or nil
}

// endingOf returns how c ended. Its text lacks the stop string or token, unless the request
// keeps it.
func (w *Writer) endingOf(c *inference.Completion) ending {
	e := ending{text: w.text(c), reason: string(c.Finish)}
	if text, stop, ok := cut(e.text, w.job.Stop, w.job.IncludeStop); ok {
		e.text, e.stop = text, stop
		return e
	}
	if n := len(c.IDs) - 1; c.Finish == rollout.Stop && n >= 0 {
		last := c.IDs[n]
		if slices.Contains(w.job.StopIDs, last) { // one of the client's; EOS is not reported
			e.stop = last
		}
		if w.tokenizer != nil && !w.job.IncludeStop && slices.Contains(w.job.Each.Sampling.StopIDs, last) {
			e.text = w.decode(c.IDs[:n])
		}
	}
	return e
}

// cut cuts text before the stop string that occurs first in it, or after that string if
// keep is set.
func cut(text string, stops []string, keep bool) (before, stop string, ok bool) {
	at := -1
	for _, candidate := range stops {
		if i := strings.Index(text, candidate); i >= 0 && (at < 0 || i < at) {
			at, stop = i, candidate
		}
	}
	if at < 0 {
		return text, "", false
	}
	if keep {
		at += len(stop)
	}
	return text[:at], stop, true
}

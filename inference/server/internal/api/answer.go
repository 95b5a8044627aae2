package api

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/rollout"
)

// lowestLogprob replaces lower log-probabilities, because JSON cannot represent -Inf.
// Only alternatives need it: sampled tokens have finite log-probabilities.
const lowestLogprob = -9999

// Writer writes the answer to one job.
type Writer struct {
	model string
	text  Text // nil if tokens are named by their IDs
	job   *Job
}

// NewWriter returns a Writer for a job prepared by m.
func (m *Model) NewWriter(j *Job) *Writer { return &Writer{m.ID, m.Text, j} }

// piece returns the text of a token or the name of a special token. It returns token_id:ID if the
// request asks for IDs or there is no tokenizer.
func (w *Writer) piece(id int32) string {
	if w.job.TokensAsIDs || w.job.Generate || w.text == nil {
		return "token_id:" + strconv.Itoa(int(id))
	}
	text, _ := w.text.Piece(id)
	return lossy.String(text)
}

// textEntries returns the log-probabilities of tokens in the form of text completions. offset and
// next are where the tokens' text begins and ends in the text of the choice, in characters.
// Special tokens have no text.
func (w *Writer) textEntries(
	ids []int32, logprobs []float32, top [][]inference.TokenLogprob, offset int,
) (entries textLogprobs, next int) {
	entries = textLogprobs{Offsets: []int{}, Logprobs: []any{}, Tokens: []string{}, Top: []map[string]float32{}}
	for i, id := range ids {
		token := w.piece(id)
		likeliest := map[string]float32{token: logprobs[i]}
		if i < len(top) {
			for _, t := range top[i] {
				name := w.piece(t.ID)
				// Of tokens with the same text, keep the sampled one, or else the likeliest.
				if _, ok := likeliest[name]; !ok {
					likeliest[name] = max(t.Logprob, lowestLogprob)
				}
			}
		}
		entries.Offsets = append(entries.Offsets, offset)
		entries.Logprobs = append(entries.Logprobs, logprobs[i])
		entries.Tokens = append(entries.Tokens, token)
		entries.Top = append(entries.Top, likeliest)
		if w.text == nil {
			continue
		}
		if text, special := w.text.Piece(id); !special {
			offset += utf8.RuneCountInString(text)
		}
	}
	return entries, offset
}

// chatEntries returns the log-probabilities of tokens in the form of chat completions.
func (w *Writer) chatEntries(ids []int32, logprobs []float32, top [][]inference.TokenLogprob) chatLogprobs {
	entry := func(id int32, logprob float32) tokenLogprob {
		e := tokenLogprob{Token: w.piece(id), Logprob: max(logprob, lowestLogprob)}
		if w.text != nil {
			e.Bytes = []int{}
			text, _ := w.text.Piece(id)
			for _, b := range []byte(text) {
				e.Bytes = append(e.Bytes, int(b))
			}
		}
		return e
	}
	out := chatLogprobs{Content: []tokenLogprob{}}
	for i, id := range ids {
		e := entry(id, logprobs[i])
		e.Top = &[]tokenLogprob{}
		if i < len(top) {
			for _, t := range top[i] {
				*e.Top = append(*e.Top, entry(t.ID, t.Logprob))
			}
		}
		out.Content = append(out.Content, e)
	}
	return out
}

// header returns the fields that complete answers and chunks share.
func (w *Writer) header(object string, version int64, checksum string) answer {
	return answer{ID: w.job.ID, Object: object, Created: w.job.Created, Model: w.model, Version: version,
		Checksum: checksum, Choices: []choice{}}
}

// Write writes the complete answer with the completions of out. It encodes one choice at a time and
// then clears that element of out, because the JSON of a choice takes many times the memory of
// its numbers.
func (w *Writer) Write(to io.Writer, out []inference.Completion) error {
	const list = `"choices":[`
	frame, err := json.Marshal(w.frame(out))
	if err != nil {
		return err
	}
	before, after, _ := bytes.Cut(frame, []byte(list))
	prefix := slices.Concat(before, []byte(list)) // what precedes the next choice
	for i := range out {
		data, err := json.Marshal(w.choice(i, &out[i]))
		if err != nil {
			return err
		}
		out[i] = inference.Completion{}
		if _, err := to.Write(append(prefix, data...)); err != nil {
			return err
		}
		prefix = []byte(",")
	}
	_, err = to.Write(after)
	return err
}

// frame returns a complete answer except its choices. out has at least one completion.
func (w *Writer) frame(out []inference.Completion) answer {
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

// choice converts completion c to choice i. It clears the tokens of c if the request wants none.
func (w *Writer) choice(i int, c *inference.Completion) choice {
	if *w.job.MaxTokens == 0 { // drop the one token that the backend has to sample
		*c = inference.Completion{PromptLogprobs: c.PromptLogprobs, PromptTop: c.PromptTop, Finish: "length",
			Version: c.Version, Checksum: c.Checksum}
	}
	e := w.endingOf(c)
	ch := choice{Index: i, Finish: &e.reason, Stop: e.stop}
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
func (w *Writer) fillText(ch *choice, c *inference.Completion, text string) {
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

// fillIDs sets the fields of a choice in an answer of token IDs.
func (w *Writer) fillIDs(ch *choice, c *inference.Completion) {
	ch.IDs = c.IDs
	ch.Versions = []span{{Version: strconv.FormatInt(c.Version, 10), End: len(c.IDs)}}
	if w.job.Logprobs != nil {
		ch.Logprobs = w.idEntries(c)
	}
}

// idEntries returns the log-probabilities of c's tokens in the form of an answer of token IDs.
func (w *Writer) idEntries(c *inference.Completion) idLogprobs {
	entry := func(id int32, logprob float32) idLogprob {
		return idLogprob{Token: w.piece(id), ID: id, Logprob: max(logprob, lowestLogprob)}
	}
	out := idLogprobs{Content: []idLogprob{}}
	for i, id := range c.IDs {
		e := entry(id, c.Logprobs[i])
		e.Top = []idLogprob{e}
		if i < len(c.Top) {
			for _, t := range c.Top[i] {
				if t.ID != id {
					e.Top = append(e.Top, entry(t.ID, t.Logprob))
				}
			}
		}
		out.Content = append(out.Content, e)
	}
	return out
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
		entries := map[int32]entry{}
		if c.PromptTop != nil {
			for _, t := range c.PromptTop[i][:min(len(c.PromptTop[i]), *w.job.PromptLogprobs)] {
				entries[t.ID] = entry{max(t.Logprob, lowestLogprob), w.piece(t.ID)}
			}
		}
		entries[ids[i]] = entry{c.PromptLogprobs[i], w.piece(ids[i])}
		out[i] = entries
	}
	return out
}

// usageOf returns the usage of j, whose answer has this many tokens so far.
func usageOf(j *Job, tokens int) *usage {
	u := &usage{Answer: tokens}
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
	e := ending{text: w.textOf(c), reason: string(c.Finish)}
	if text, stop, ok := cut(e.text, w.job.Stop, w.job.IncludeStop); ok {
		e.text, e.stop = text, stop
		return e
	}
	if n := len(c.IDs) - 1; c.Finish == rollout.Stop && n >= 0 {
		last := c.IDs[n]
		if slices.Contains(w.job.StopIDs, last) { // the model's own EOS tokens are not reported
			e.stop = last
		}
		if w.text != nil && !w.job.IncludeStop && slices.Contains(w.job.Each.Sampling.StopIDs, last) {
			e.text = w.decode(c.IDs[:n])
		}
	}
	return e
}

// cut cuts text before the stop string that occurs first in it, or after that string if
// keep is set.
func cut(text string, stops []string, keep bool) (before, stop string, ok bool) {
	end := -1
	for _, candidate := range stops {
		if i := strings.Index(text, candidate); i >= 0 && (end < 0 || i < end) {
			end = i
			stop = candidate
		}
	}
	if end < 0 {
		return text, "", false
	}
	if keep {
		end += len(stop)
	}
	return text[:end], stop, true
}

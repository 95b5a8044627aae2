package server

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
)

// lowestLogprob stands for what JSON has no number for.
const lowestLogprob = -9999

// piece is a token as the answer names it.
func (s *Server) piece(j *job, id int32) string {
	if j.tokensAsIDs || s.text == nil {
		return "token_id:" + strconv.Itoa(int(id))
	}
	text, _ := s.text.Piece(id)
	return text
}

// textEntries are log-probabilities of tokens whose text begins at offset; next
// is where it ends.
func (s *Server) textEntries(j *job, ids []int32, logprobs []float32, top [][]inference.TokenLogprob, offset int) (entries openai.TextLogprobs, next int) {
	entries = openai.TextLogprobs{Offsets: []int{}, Logprobs: []any{}, Tokens: []string{}, Top: []map[string]float32{}}
	for i, id := range ids {
		token := s.piece(j, id)
		likeliest := map[string]float32{token: logprobs[i]}
		if i < len(top) {
			for _, t := range top[i] {
				name := s.piece(j, t.ID)
				if _, ok := likeliest[name]; !ok { // two tokens may read the same: the likelier one stays
					likeliest[name] = max(t.Logprob, lowestLogprob)
				}
			}
		}
		entries.Offsets = append(entries.Offsets, offset)
		entries.Logprobs = append(entries.Logprobs, logprobs[i])
		entries.Tokens = append(entries.Tokens, token)
		entries.Top = append(entries.Top, likeliest)
		if s.text == nil {
			continue
		}
		if text, special := s.text.Piece(id); !special {
			offset += utf8.RuneCountInString(text)
		}
	}
	return entries, offset
}

// chatEntries are log-probabilities of tokens.
func (s *Server) chatEntries(j *job, ids []int32, logprobs []float32, top [][]inference.TokenLogprob) openai.ChatLogprobs {
	entry := func(id int32, logprob float32) openai.TokenLogprob {
		e := openai.TokenLogprob{Token: s.piece(j, id), Logprob: max(logprob, lowestLogprob)}
		if s.text != nil {
			e.Bytes = []int{}
			text, _ := s.text.Piece(id)
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

// start is an answer without choices.
func (s *Server) start(j *job, object string, version int64, checksum string) openai.Answer {
	return openai.Answer{ID: j.id, Object: object, Created: j.created, Model: s.backend.ID(), Version: version, Checksum: checksum, Choices: []openai.Choice{}}
}

// writeAnswer answers j with out, a choice after the other: what JSON makes of one
// takes many times the room of its numbers. out is spent.
func (s *Server) writeAnswer(ctx *fasthttp.RequestCtx, j *job, out []inference.Completion) {
	const list = `"choices":[`
	writeJSON(ctx, fasthttp.StatusOK, s.answer(j, out))
	before, after, _ := bytes.Cut(bytes.Clone(ctx.Response.Body()), []byte(list))
	ctx.SetBody(before)
	between := list
	for i := range out {
		data, err := json.Marshal(s.choice(j, i, &out[i]))
		if err != nil {
			refuse(ctx, err)
			return
		}
		out[i] = inference.Completion{}
		ctx.Response.AppendBodyString(between)
		ctx.Response.AppendBody(data)
		between = ","
	}
	ctx.Response.AppendBody(after)
}

// answer is the answer to j but for its choices.
func (s *Server) answer(j *job, out []inference.Completion) openai.Answer {
	object := "text_completion"
	if j.chat {
		object = "chat.completion"
	}
	a := s.start(j, object, out[0].Version, out[0].Checksum)
	tokens := 0
	for i := range out {
		if *j.maxTokens > 0 {
			tokens += len(out[i].IDs)
		}
	}
	a.Usage = j.usageOf(tokens)
	if j.chat && j.returnIDs {
		a.PromptID = j.prompts[0]
	}
	return a
}

// choice is the choice of an answer that c is, which has place i.
func (s *Server) choice(j *job, i int, c *inference.Completion) openai.Choice {
	if *j.maxTokens == 0 { // an echo alone; a token was sampled since one must be
		*c = inference.Completion{PromptLogprobs: c.PromptLogprobs, Finish: "length", Version: c.Version, Checksum: c.Checksum}
	}
	e := s.end(j, c)
	ch := openai.Choice{Index: i, Finish: &e.reason, Stop: e.stop}
	if j.returnIDs {
		ch.IDs = c.IDs
	}
	if j.chat {
		ch.Message = &openai.Message{Role: "assistant", Content: e.text}
		if j.logprobs != nil {
			ch.Logprobs = s.chatEntries(j, c.IDs, c.Logprobs, c.Top)
		}
	} else {
		s.fillText(j, &ch, c, e.text)
	}
	if j.promptLogprobs != nil {
		ch.PromptLogprobs = s.promptEntries(j, j.prompts[i/j.n], c.PromptLogprobs)
	}
	return ch
}

// fillText fills in what only completions have.
func (s *Server) fillText(j *job, ch *openai.Choice, c *inference.Completion, text string) {
	prompt := j.prompts[ch.Index/j.n]
	if j.returnIDs {
		ch.PromptIDs = prompt
	}
	ids, logprobs := c.IDs, c.Logprobs
	if j.echo {
		text = j.texts[ch.Index/j.n] + text
		ids = append(prompt[:len(prompt):len(prompt)], ids...)
		logprobs = append(c.PromptLogprobs[:len(c.PromptLogprobs):len(c.PromptLogprobs)], logprobs...)
	}
	ch.Text = &text
	if j.logprobs == nil {
		return
	}
	entries, _ := s.textEntries(j, ids, logprobs, c.Top, 0)
	if j.echo {
		entries.Logprobs[0], entries.Top[0] = nil, nil // nothing comes before the first token
	}
	ch.Logprobs = entries
}

// promptEntries are vLLM's: null for the first token, then an object from the
// token's id to its log-probability.
func (s *Server) promptEntries(j *job, ids []int32, logprobs []float32) []any {
	out := make([]any, len(ids))
	for i := 1; i < len(ids); i++ {
		out[i] = map[string]any{strconv.Itoa(int(ids[i])): map[string]any{"logprob": logprobs[i], "decoded_token": s.piece(j, ids[i])}}
	}
	return out
}

// usageOf counts the prompts and so many tokens of answers.
func (j *job) usageOf(tokens int) *openai.Usage {
	u := &openai.Usage{Answer: tokens}
	for _, p := range j.prompts {
		u.Prompt += len(p)
	}
	u.Total = u.Prompt + u.Answer
	return u
}

// complete answers a request for completions.
func (s *Server) complete(ctx *fasthttp.RequestCtx, chat bool) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	ended := s.finish
	defer func() { ended() }()
	data, release, err := s.readBody(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := decodeRequest(data, chat)
	if err != nil {
		return err
	}
	j, err := s.prepare(r)
	if err != nil {
		return err
	}
	reqCtx, stop := s.watch(ctx)
	if j.stream {
		ended = func() {} // the stream ends by itself
		return s.stream(reqCtx, ctx, j, func() { stop(); s.finish() })
	}
	defer stop()
	out, err := s.run(reqCtx, j, nil)
	if err != nil {
		return err
	}
	s.writeAnswer(ctx, j, out)
	return nil
}

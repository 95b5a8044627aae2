package api

import (
	"crypto/rand"
	"slices"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// idLength is the length of a call's ID. Mistral's chat templates accept no other.
const idLength = 9

// callsOf returns calls as OpenAI does, at most one if the request wants no parallel calls.
// before is the number of calls of the message before them.
func (w *Writer) callsOf(found []calls.Call, before int) []call {
	var out []call
	for _, c := range found {
		if !w.job.ParallelCalls && before+len(out) > 0 {
			break
		}
		out = append(out, call{ID: rand.Text()[:idLength], Type: "function",
			Function: function{Name: c.Name, Arguments: c.Arguments}})
	}
	return out
}

// parser returns a parser of one answer's tool calls, or nil if they stay text.
func (w *Writer) parser() *calls.Parser {
	if w.job.Calls == calls.None {
		return nil
	}
	return w.job.Calls.NewParser(w.job.Tools, w.job.Thinking)
}

// message returns the message of a response that has ended. Tool calls change how it ended.
func (w *Writer) message(e *ending) *answerMessage {
	m := &answerMessage{Role: "assistant", Content: &e.text}
	p := w.parser()
	if p == nil {
		return m
	}
	content, found := p.Add(e.text)
	rest, last := p.End()
	if m.Calls = w.callsOf(append(found, last...), 0); m.Calls == nil {
		return m
	}
	e.called()
	if content += rest; content == "" {
		m.Content = nil
	} else {
		m.Content = &content
	}
	return m
}

// called records that the message has tool calls. A message that was cut stays so.
func (e *ending) called() {
	if e.reason == string(rollout.Stop) {
		e.reason = "tool_calls"
	}
}

// marks reports whether a token marks a tool call but has no text, because the tokenizer
// treats it as special.
func (w *Writer) marks(id int32) bool {
	if w.job.Calls == calls.None {
		return false
	}
	name, special := w.text.Piece(id)
	return special && slices.Contains(w.job.Calls.Markers(), name)
}

// textOf returns the text of c with the marks of tool calls.
func (w *Writer) textOf(c *inference.Completion) string {
	if slices.ContainsFunc(c.IDs, w.marks) {
		return w.decode(c.IDs)
	}
	return c.Text
}

// decode returns the text of ids with the marks of tool calls.
func (w *Writer) decode(ids []int32) string {
	text := ""
	for {
		i := slices.IndexFunc(ids, w.marks)
		if i < 0 {
			return text + w.text.Decode(ids)
		}
		name, _ := w.text.Piece(ids[i])
		text += w.text.Decode(ids[:i]) + name
		ids = ids[i+1:]
	}
}

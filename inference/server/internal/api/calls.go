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

// callsOf converts parsed calls to OpenAI's format and gives each a new ID. If the request wants no
// parallel calls, it keeps only the first call of the message. before is the number of calls that
// the message already has.
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

// parser returns a parser of one answer's tool calls, or nil if tool calls stay text.
func (w *Writer) parser() *calls.Parser {
	if w.job.Calls == calls.None {
		return nil
	}
	return w.job.Calls.NewParser(w.job.Tools, w.job.Thinking)
}

// message returns the message of a complete response. If it has tool calls, message updates e.
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
	e.setToolCalls()
	if content += rest; content == "" {
		m.Content = nil
	} else {
		m.Content = &content
	}
	return m
}

// setToolCalls records that the message has tool calls. A message cut by a limit keeps its reason.
func (e *ending) setToolCalls() {
	if e.reason == string(rollout.Stop) {
		e.reason = "tool_calls"
	}
}

// isMarker reports whether a token marks a tool call but has no text, because the tokenizer
// treats it as special.
func (w *Writer) isMarker(id int32) bool {
	if w.job.Calls == calls.None {
		return false
	}
	name, special := w.text.Piece(id)
	return special && slices.Contains(w.job.Calls.Markers(), name)
}

// textOf returns the text of c, including tool-call markers.
func (w *Writer) textOf(c *inference.Completion) string {
	if slices.ContainsFunc(c.IDs, w.isMarker) {
		return w.decode(c.IDs)
	}
	return c.Text
}

// decode returns the text of ids, including tool-call markers, which Text.Decode omits.
func (w *Writer) decode(ids []int32) string {
	text := ""
	for {
		i := slices.IndexFunc(ids, w.isMarker)
		if i < 0 {
			return text + w.text.Decode(ids)
		}
		name, _ := w.text.Piece(ids[i])
		text += w.text.Decode(ids[:i]) + name
		ids = ids[i+1:]
	}
}

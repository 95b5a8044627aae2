package data

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Example is one demonstration: a prompt, as text or chat messages, and the
// response to imitate. In a chat, the response is the last turn; earlier
// assistant turns are part of the prompt.
type Example struct {
	ID       string            // unique in the data set
	Source   string            // name of the data set
	Prompt   string            // plain text; "" for a chat
	Messages []rollout.Message // turns of a chat before the response; nil for plain text
	Response string
	// Extra holds further fields of the response's message, such as
	// reasoning_content.
	Extra map[string]json.RawMessage
}

// ExampleOptions names the fields of a file's objects, like Options.
//
// Without PromptKey and ResponseKey, the layout is recognized from a file's first
// object: the prompt as described for Options, and response, completion or
// output; messages or conversations that end with an assistant turn; else
// solution (MATH) or answer (GSM8K), in full. If several candidates differ, the
// error names them.
type ExampleOptions struct {
	PromptKey string // field of the prompt: a string or a list of messages
	// ResponseKey is the field of the response: a string, or a list of one assistant message.
	// It is "" to recognize the field, or if the prompt's list ends with the response.
	ResponseKey string
	SourceKey   string // as in Options
}

// ReadExamples reads demonstrations from files and patterns, one list per path.
// Formats, IDs and errors are those of ReadAll.
func ReadExamples(paths []string, opts ExampleOptions) ([][]Example, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	out := make([][]Example, len(paths))
	ids := identities{}
	for _, f := range files {
		d := exampleReader{label: f.label, opts: opts, ids: ids}
		d.records = records{path: f.path, explicit: []string{opts.PromptKey, opts.ResponseKey, opts.SourceKey},
			yield: d.example, accepts: d.accepts}
		if err := d.records.open(); err != nil {
			return nil, err
		}
		out[f.part] = append(out[f.part], d.examples...)
	}
	return out, nil
}

// EachTurn returns the examples. Before each one, it adds an example for each earlier
// assistant turn except a first turn. The ID of an added example ends with a colon and the
// turn's number in the conversation, from 1. The added examples share the messages of the
// original.
func EachTurn(examples []Example) []Example {
	var out []Example
	for _, e := range examples {
		for i, m := range e.Messages {
			if earlier(i, m) {
				out = append(out, Example{ID: e.ID + ":" + strconv.Itoa(i+1), Source: e.Source,
					Messages: e.Messages[:i:i], Response: m.Content, Extra: m.Extra})
			}
		}
		out = append(out, e)
	}
	return out
}

// earlier reports whether EachTurn adds an example for turn i of a prompt.
func earlier(i int, m rollout.Message) bool { return i > 0 && m.Role == "assistant" }

// EarlierTurns returns the number of examples that EachTurn would add.
func EarlierTurns(examples []Example) (n int) {
	for _, e := range examples {
		for i, m := range e.Messages {
			if earlier(i, m) {
				n++
			}
		}
	}
	return n
}

// exampleReader converts one file's objects to examples, as reader does to prompts.
type exampleReader struct {
	records  records
	label    string // prefix of IDs
	opts     ExampleOptions
	layout   *layout    // set from the first object
	ids      identities // shared by all files
	examples []Example
}

// accepts reports whether an object is itself a record.
func (d *exampleReader) accepts(fields map[string]json.RawMessage) bool {
	_, err := recogniseExample(fields, d.opts)
	return err == nil
}

// example adds the example of one object.
func (d *exampleReader) example(r record) error {
	e, err := d.exampleOf(r)
	if err != nil {
		return d.records.fault(r.line, err)
	}
	d.examples = append(d.examples, e)
	return nil
}

func (d *exampleReader) exampleOf(r record) (e Example, err error) {
	if d.layout == nil {
		l, err := recogniseExample(r.fields, d.opts)
		if err != nil {
			return e, err
		}
		d.layout = &l
	}
	if d.layout.response == "" {
		raw, err := find(r.fields, d.layout.prompt[0])
		if err != nil {
			return e, fmt.Errorf("prompt: %w", err)
		}
		before, reply, err := demonstration(raw)
		if err != nil {
			return e, fmt.Errorf("prompt: key %q: %w", d.layout.prompt[0], err)
		}
		e.Messages, e.Response, e.Extra = before, reply.Content, reply.Extra
	} else {
		if e.Prompt, e.Messages, err = d.layout.promptOf(r.fields); err != nil {
			return e, err
		}
		reply, err := responseOf(r.fields, d.layout.response)
		if err != nil {
			return e, fmt.Errorf("response: %w", err)
		}
		e.Response, e.Extra = reply.Content, reply.Extra
	}
	if e.Source, err = sourceOf(r.fields, d.opts.SourceKey, d.records.path); err != nil {
		return e, err
	}
	e.ID, err = d.ids.claim(r.fields, d.label, r.number, place{d.records.path, r.line})
	return e, err
}

// demonstration splits off a chat's last turn, which must be the assistant's.
func demonstration(raw json.RawMessage) (before []rollout.Message, reply rollout.Message, err error) {
	chat, err := Messages(raw)
	if err != nil {
		return nil, reply, err
	}
	before, reply, ok := beforeReply(chat)
	if !ok {
		return nil, reply, fmt.Errorf("%d turns end with role %q, expected a final assistant turn after another",
			len(chat), chat[len(chat)-1].Role)
	}
	return before, reply, nil
}

// responseOf returns the response in the field key: a string, or a list with one
// assistant message.
func responseOf(fields map[string]json.RawMessage, key string) (reply rollout.Message, err error) {
	raw, err := find(fields, key)
	if err != nil {
		return reply, err
	}
	switch kind := kindOf(raw); kind {
	case "a string":
		reply.Content, err = text(raw)
		return reply, err
	case "an array":
		chat, err := Messages(raw)
		if err != nil {
			return reply, fmt.Errorf("key %q: %w", key, err)
		}
		last := chat[len(chat)-1]
		if len(chat) != 1 || last.Role != "assistant" {
			return reply, fmt.Errorf("key %q has %d turns and ends with role %q, expected one assistant turn", key,
				len(chat), last.Role)
		}
		return last, nil
	default:
		return reply, fmt.Errorf("key %q is %s, expected a string", key, kind)
	}
}

// recogniseExample finds the layout of examples from a file's first object, as
// ExampleOptions describes it.
func recogniseExample(fields map[string]json.RawMessage, opts ExampleOptions) (layout, error) {
	if opts.PromptKey != "" {
		l := layout{prompt: []string{opts.PromptKey}, response: opts.ResponseKey}
		if raw, err := find(fields, opts.PromptKey); err == nil && l.response == "" && !endsWithReply(raw) {
			return l, l.findResponse(fields)
		}
		return l, nil
	}
	var l layout
	chats := having(fields, chatNames(), endsWithReply)
	if opts.ResponseKey != "" {
		l.response = opts.ResponseKey
		return l, l.findPrompt(fields, false)
	}
	err := l.findPrompt(fields, false)
	if err == nil && (len(chats) == 0 || !slices.Contains(chats, l.prompt[0])) {
		err = l.findResponse(fields)
	}
	switch {
	case len(chats) == 0:
		return l, err
	case err == nil && l.response != "" && !l.sameReply(fields, chats[0]):
		return l, ambiguous("response", "data.prompt_key", []string{chats[0], l.response})
	case len(agree(fields, chats)) > 1:
		return l, ambiguous("prompt", "data.prompt_key", chats)
	}
	return layout{prompt: chats[:1]}, nil
}

// sameReply reports whether the last turn of a chat is the response that the
// layout found.
func (l *layout) sameReply(fields map[string]json.RawMessage, chat string) bool {
	response, err := responseOf(fields, l.response)
	if err != nil {
		return false
	}
	_, reply, err := demonstration(fields[chat])
	return err == nil && strings.TrimSpace(reply.Content) == strings.TrimSpace(response.Content)
}

// findResponse sets the field of the response.
func (l *layout) findResponse(fields map[string]json.RawMessage) error {
	isResponse := func(raw json.RawMessage) bool { return isText(raw) || looksLikeMessages(raw) }
	for _, names := range [][]string{responseNames(), {"solution"}, {"answer"}} {
		found := agree(fields, having(fields, names, isResponse))
		found = slices.DeleteFunc(found, func(key string) bool { return slices.Contains(l.prompt, key) })
		if len(found) > 1 {
			return ambiguous("response", "sft.response_key", found)
		}
		if len(found) == 1 {
			l.response = found[0]
			return nil
		}
	}
	if err := whyNot("response", fields, responseNames()); err != nil {
		return err
	}
	return fmt.Errorf("response: no known field (%s, solution, answer, or messages with a final assistant turn), "+
		"found %s; set sft.response_key",
		strings.Join(responseNames(), ", "), keys(fields))
}

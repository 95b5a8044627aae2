// Package chat renders conversations into prompts with a model's chat template.
// Templates are Jinja's, run as Hugging Face runs them: in a sandbox, with
// trim_blocks and lstrip_blocks, loop controls, generation blocks, its tojson,
// raise_exception and strftime_now. Their steps, memory and nesting are bounded.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/tokenizer/chat/calls"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/engine"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

var (
	// ErrNone reports a model folder without a chat template.
	ErrNone = errors.New("no chat template")
	// ErrLimit reports a template that exceeds the limits of steps, memory or nesting.
	ErrLimit = errors.New("template stopped")
)

// Error describes a fault of a template or of its variables.
type Error struct {
	Kind    string // name of Python's exception: TemplateSyntaxError, TypeError, UndefinedError, …
	Message string
	Line    int // line of the template, from 1; 0 if unknown
}

// Error returns the line, the kind and the message.
func (e *Error) Error() string {
	return "chat template " + (&py.Error{Kind: e.Kind, Message: e.Message, Line: e.Line}).Error()
}

// Is reports whether e is ErrLimit.
func (e *Error) Is(target error) bool { return target == ErrLimit && e.Kind == py.KindLimit }

// export converts an error of the interpreter to an *Error.
func export(err error) error {
	var raised *py.Error
	if errors.As(err, &raised) {
		return &Error{Kind: raised.Kind, Message: raised.Message, Line: raised.Line}
	}
	return err
}

// Specials are a tokenizer's special tokens by the names that templates use:
// bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token.
type Specials map[string]string

// Limits bounds one rendering.
type Limits struct {
	Steps int64 // evaluated parts, loop rounds, and one for every 64 bytes handled
	Bytes int64 // bytes of all strings and lists made, whether still in use or not
	Depth int   // nesting of expressions, blocks, macros and data
}

// DefaultLimits returns limits that allow conversations of megabytes and end any template
// within about a second.
func DefaultLimits() Limits { return Limits{Steps: 5_000_000, Bytes: 128 << 20, Depth: 2000} }

// Template is a parsed chat template. It is safe for concurrent use once Limits is set.
type Template struct {
	Limits   Limits
	specials Specials
	body     *engine.Template
	tools    *engine.Template // separate template for conversations with tools; nil if there is none
	calls    calls.Format     // result of Calls
	forTools bool             // result of ForTools
}

// Calls returns the format of tool calls in the template.
func (t *Template) Calls() calls.Format { return t.calls }

// ForTools reports whether the template renders tools.
func (t *Template) ForTools() bool { return t.forTools }

// Parse parses a template; errors in it are of type *Error.
func Parse(source string, specials Specials) (*Template, error) {
	body, err := engine.Parse(source)
	if err != nil {
		return nil, export(err)
	}
	return &Template{Limits: DefaultLimits(), specials: specials, body: body, calls: calls.Of(source),
		forTools: calls.ForTools(source)}, nil
}

// Message is a message of a conversation. Raw, if set, replaces Role and Content: it is the
// message as a JSON object, whose keys keep their order.
type Message struct {
	Role    string
	Content string
	Raw     json.RawMessage
}

// Input holds the variables of a prompt.
type Input struct {
	Messages            []Message
	Tools               []json.RawMessage // JSON objects, whose keys keep their order
	Documents           []json.RawMessage // likewise
	AddGenerationPrompt bool              // end with the start of the assistant's turn
	// Extra holds further variables, such as enable_thinking. encoding/json must be able
	// to encode the values. A json.RawMessage keeps the order of its keys and the kind of
	// its numbers.
	Extra map[string]any
	Now   time.Time // for strftime_now; the zero time is the time of the call
}

// Render renders the prompt. Errors of the template are of type *Error.
func (t *Template) Render(in Input) (string, error) {
	body := t.body
	if t.tools != nil && len(in.Tools) > 0 {
		body = t.tools
	}
	return t.render(body, in.Now, func(m *py.Machine) (*py.Dict, error) {
		vars := py.NewDict()
		for name, text := range t.specials {
			m.Set(vars, name, text)
		}
		messages, err := listOf(m, "message", in.Messages, messageValue)
		if err != nil {
			return nil, err
		}
		tools, err := listOf(m, "tool", in.Tools, rawValue)
		if err != nil {
			return nil, err
		}
		documents, err := listOf(m, "document", in.Documents, rawValue)
		if err != nil {
			return nil, err
		}
		if messages == nil {
			messages = m.NewList(nil)
		}
		m.Set(vars, "messages", messages)
		m.Set(vars, "tools", tools)
		m.Set(vars, "documents", documents)
		m.Set(vars, "add_generation_prompt", in.AddGenerationPrompt)
		for name, v := range in.Extra {
			value, err := valueOf(m, v)
			if err != nil {
				return nil, fmt.Errorf("chat template variable %s: %w", name, err)
			}
			m.Set(vars, name, value)
		}
		return vars, nil
	})
}

// RenderVariables renders the template with exactly the variables of a JSON
// object, without the special tokens.
func (t *Template) RenderVariables(variables json.RawMessage, now time.Time) (string, error) {
	return t.render(t.body, now, func(m *py.Machine) (*py.Dict, error) {
		v, err := m.DecodeJSON(variables)
		if err != nil {
			return nil, fmt.Errorf("chat template variables: %w", err)
		}
		vars, ok := v.(*py.Dict)
		if !ok {
			return nil, fmt.Errorf("chat template variables: JSON %s, expected an object", py.TypeName(v))
		}
		return vars, nil
	})
}

// render renders body with the variables that vars returns. A zero now is the current time.
func (t *Template) render(body *engine.Template, now time.Time, vars func(m *py.Machine) (*py.Dict, error)) (
	string, error) {
	if now.IsZero() {
		now = time.Now()
	}
	text, err := body.Render(py.Limits(t.Limits), now, vars)
	if err != nil {
		return "", export(err)
	}
	return text, nil
}

package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/inference"
	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/tokenizer/chat"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// textOf adapts a folder's tokenizer and chat template to api.Text.
type textOf struct{ *folder.Folder }

var _ api.Text = textOf{}

// Encode implements api.Text.
func (t textOf) Encode(text string) ([]int32, error) {
	if context := t.Shape.MaxPositions; len(text) > t.Tokenizer.Longest(context) {
		return nil, fmt.Errorf("%w: text of %d bytes exceeds this model's maximum context length of %d tokens",
			inference.ErrInvalid, len(text), context)
	}
	ids, err := t.Tokenizer.EncodePrompt(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	return ids, nil
}

// Decode implements api.Text.
func (t textOf) Decode(ids []int32) string { return t.Tokenizer.Decode(ids) }

// Piece implements api.Text.
func (t textOf) Piece(id int32) (text string, special bool) {
	if name := t.Tokenizer.Special(id); name != "" {
		return name, true
	}
	return t.Tokenizer.Bytes(id), false
}

// EOS implements api.Text.
func (t textOf) EOS() []int32 { return t.StopIDs }

// Calls implements api.Text.
func (t textOf) Calls() calls.Format {
	if t.Template == nil || !t.Template.ForTools() {
		return calls.None
	}
	return t.Template.Calls()
}

// Chat implements api.Text.
func (t textOf) Chat(messages, tools, variables json.RawMessage) ([]int32, error) {
	if t.Template == nil {
		return nil, fmt.Errorf("%w: %s has no chat template; send a prompt to the completions endpoint instead",
			inference.ErrInvalid, t.Source)
	}
	text, err := render(t.Template, messages, tools, variables)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	ids, err := t.Tokenizer.Encode(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", inference.ErrInvalid, err)
	}
	return ids, nil
}

// render returns the text of a conversation in OpenAI's format with the generation prompt.
func render(t *chat.Template, messages, tools, variables json.RawMessage) (string, error) {
	in := chat.Input{AddGenerationPrompt: true, Extra: map[string]any{}}
	var list []json.RawMessage
	if err := json.Unmarshal(messages, &list); err != nil || len(list) == 0 {
		return "", errors.New("messages: expected a list of at least one message")
	}
	for i, raw := range list {
		m, err := chatMessage(raw, t.Calls())
		if err != nil {
			return "", fmt.Errorf("messages[%d]: %w", i, err)
		}
		in.Messages = append(in.Messages, m)
	}
	if tools != nil && json.Unmarshal(tools, &in.Tools) != nil {
		return "", errors.New("tools: expected a list")
	}
	var extra map[string]json.RawMessage
	if variables != nil && json.Unmarshal(variables, &extra) != nil {
		return "", errors.New("chat_template_kwargs: expected an object")
	}
	for name, value := range extra {
		in.Extra[name] = value
	}
	text, err := t.Render(in)
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}

// chatMessage reads a message in OpenAI's format. It joins text parts, because few
// templates handle them, and converts the arguments of tool calls to what templates of the
// format expect.
func chatMessage(raw json.RawMessage, format calls.Format) (m chat.Message, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return m, errors.New("expected an object")
	}
	if err := json.Unmarshal(fields["role"], &m.Role); err != nil || m.Role == "" {
		return m, errors.New("role: expected a string")
	}
	m.Raw = raw
	text, err := joined(fields["content"])
	if err != nil {
		return m, err
	}
	converted, err := convertCalls(fields["tool_calls"], format)
	if err != nil {
		return m, err
	}
	if text == nil && converted == nil {
		return m, nil
	}
	if text != nil {
		fields["content"] = text
	}
	if converted != nil {
		fields["tool_calls"] = converted
	}
	m.Raw, err = json.Marshal(fields)
	return m, err
}

// joined returns the text of content's parts as one JSON string, or nil if content is no list of parts.
func joined(content json.RawMessage) (json.RawMessage, error) {
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil || parts == nil {
		return nil, nil // a string, or none beside tool calls
	}
	text := ""
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return nil, fmt.Errorf("content[%d]: type is %q, expected \"text\"", i, p.Type)
		}
		text += *p.Text
	}
	return json.Marshal(text)
}

// convertCalls returns tool calls whose arguments are objects, as most templates expect
// them, or strings, as DeepSeek's do. It returns nil if there are none.
func convertCalls(raw json.RawMessage, format calls.Format) (json.RawMessage, error) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, nil
	}
	for i, call := range list {
		var function map[string]json.RawMessage
		if err := json.Unmarshal(call["function"], &function); err != nil || function == nil {
			return nil, fmt.Errorf("tool_calls[%d]: expected a function", i)
		}
		arguments, err := convertArguments(function["arguments"], format == calls.Fenced)
		if err != nil {
			return nil, fmt.Errorf("tool_calls[%d]: arguments: %w", i, err)
		}
		function["arguments"] = arguments
		if call["function"], err = json.Marshal(function); err != nil {
			return nil, err
		}
	}
	return json.Marshal(list)
}

// convertArguments returns the arguments of a tool call, given as an object or as a string with an object, as a
// string if asString is true, otherwise as an object.
func convertArguments(raw json.RawMessage, asString bool) (json.RawMessage, error) {
	text := string(raw)
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	if asString {
		return json.Marshal(text)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return nil, fmt.Errorf("%.100q, expected a JSON object", text)
	}
	return json.RawMessage(text), nil
}

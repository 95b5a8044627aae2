package api

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// conversation returns the fields that the chat template renders.
func (r *Request) conversation() []field {
	return []field{bind("messages", &r.Messages, "messages"), bind("tools", &r.Tools, "tools"),
		bind("chat_template_kwargs", &r.Variables, "an object")}
}

// validateChat checks the conversation and its tools.
func (r *Request) validateChat() error {
	if !r.Chat {
		return nil
	}
	if choice := oneLine(r.ToolChoice); !slices.Contains([]string{"", `"auto"`, `"none"`}, choice) {
		return Invalid("tool_choice", "tool_choice %.100s is not supported, expected \"auto\" or \"none\"", choice)
	}
	var variables map[string]json.RawMessage
	if r.Variables != nil && json.Unmarshal(r.Variables, &variables) != nil {
		return Invalid("chat_template_kwargs", "chat_template_kwargs %.100s, expected an object", oneLine(r.Variables))
	}
	for _, name := range []string{"messages", "tools", "add_generation_prompt"} {
		if variables[name] != nil {
			return Invalid("chat_template_kwargs", "chat_template_kwargs has %s, expected other variables", name)
		}
	}
	if err := r.validateTools(); err != nil {
		return err
	}
	var messages []message
	if err := json.Unmarshal(r.Messages, &messages); err != nil || len(messages) == 0 {
		return Invalid("messages", "messages: expected an array of at least one message, each an object with a role")
	}
	for i := range messages {
		if err := messages[i].validate(i); err != nil {
			return err
		}
	}
	return nil
}

// validateTools checks the tools. It sets an empty list to nil.
func (r *Request) validateTools() error {
	if r.Tools == nil {
		return nil
	}
	var tools []json.RawMessage
	if json.Unmarshal(r.Tools, &tools) != nil {
		return Invalid("tools", "tools %.100s, expected an array", oneLine(r.Tools))
	}
	for i, raw := range tools {
		var tool struct {
			Type     string `json:"type"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		if json.Unmarshal(raw, &tool) != nil || tool.Type != "function" || tool.Function.Name == "" {
			return Invalid("tools",
				"tools[%d] %.100s, expected an object of type \"function\" with a function that has a name", i,
				oneLine(raw))
		}
	}
	if len(tools) == 0 {
		r.Tools = nil
	}
	return nil
}

// message has the fields of a message that the server checks.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []struct {
		Type     *string `json:"type"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// validate returns an error unless message i has only text and well-formed tool calls.
func (m *message) validate(i int) error {
	if m.Role == "" {
		return Invalid("messages", "messages[%d] has no role", i)
	}
	for j, call := range m.Calls {
		arguments := call.Function.Arguments
		switch {
		case call.Type != nil && *call.Type != "function":
			return Invalid("messages", "messages[%d].tool_calls[%d] has type %.40q, expected function", i, j,
				*call.Type)
		case call.Function.Name == "",
			arguments != nil && arguments[0] != '"' && arguments[0] != '{':
			return Invalid("messages",
				"messages[%d].tool_calls[%d]: expected a function with a name and arguments, a string of JSON", i, j)
		}
	}
	if len(m.Content) == 0 || m.Content[0] == '"' || string(m.Content) == "null" {
		return nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return Invalid("messages", "messages[%d].content: expected a string or parts", i)
	}
	for j, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return Invalid("messages", "messages[%d].content[%d] has type %.40q, expected text", i, j, p.Type)
		}
	}
	return nil
}

// render sets the prompt, and Calls and Thinking, which say how to find tool calls in the answers.
func (m *Model) render(j *Job) error {
	if m.Text == nil {
		return Invalid("messages", "model %s has no chat template, expected a prompt of token ids", m.ID)
	}
	if j.Tools != nil && oneLine(j.ToolChoice) != `"none"` {
		if j.Calls = m.Text.Calls(); j.Calls == calls.None {
			return Invalid("tools",
				"the chat template of model %s has no known format of tool calls, expected tool_choice \"none\"", m.ID)
		}
	}
	done, err := m.Alone(len(j.Messages) + len(j.Tools) + len(j.Variables))
	if err != nil {
		return err
	}
	defer done()
	ids, err := m.Text.Chat(j.Messages, j.Tools, j.Variables)
	if err != nil {
		return err
	}
	j.Prompts = [][]int32{ids}
	// A <think> tag, spelled out, and the white space after it take at most about 16 tokens.
	const maxThinkTokens = 16
	end := m.Text.Decode(ids[max(0, len(ids)-maxThinkTokens):])
	j.Thinking = strings.HasSuffix(strings.TrimSpace(end), "<think>")
	return nil
}

package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Messages parses a list of chat turns: objects with role and content, or with
// from and value and older role names.
func Messages(raw json.RawMessage) ([]rollout.Message, error) {
	var turns []map[string]json.RawMessage
	if kind := kindOf(raw); kind != "an array" {
		return nil, fmt.Errorf("found %s, expected a list of messages", kind)
	}
	if err := json.Unmarshal(raw, &turns); err != nil {
		return nil, fmt.Errorf("the list holds no messages, expected objects with role and content")
	}
	if len(turns) == 0 {
		return nil, fmt.Errorf("empty list, expected messages")
	}
	out := make([]rollout.Message, len(turns))
	for i, turn := range turns {
		m, err := message(turn)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		out[i] = m
	}
	return out, nil
}

// message parses one turn. Fields other than role and content become Extra.
func message(turn map[string]json.RawMessage) (rollout.Message, error) {
	role, content := "role", "content"
	if _, ok := turn[role]; !ok && turn["from"] != nil {
		role, content = "from", "value"
	}
	var m rollout.Message
	if kindOf(turn[role]) != "a string" || json.Unmarshal(turn[role], &m.Role) != nil || m.Role == "" {
		return m, fmt.Errorf("no role, found %s, expected role and content", keys(turn))
	}
	if role == "from" {
		m.Role = modernRole(m.Role)
	}
	text, err := contentOf(turn[content])
	if err != nil {
		return m, fmt.Errorf("%s %w", content, err)
	}
	m.Content = text
	if m.Role == "user" && strings.TrimSpace(text) == "" {
		return m, fmt.Errorf("user turn is empty, found %s; expected text in %q", keys(turn), content)
	}
	for key, value := range turn {
		if key != role && key != content && len(value) > 0 && kindOf(value) != "null" {
			if m.Extra == nil {
				m.Extra = make(map[string]json.RawMessage)
			}
			m.Extra[key] = bytes.Clone(value)
		}
	}
	if turn[content] == nil && m.Extra == nil {
		return m, fmt.Errorf("no %s, found %s", content, keys(turn))
	}
	return m, nil
}

// modernRole translates the role names of data sets that use from and value.
func modernRole(role string) string {
	switch strings.ToLower(role) {
	case "human", "user":
		return "user"
	case "gpt", "assistant", "model", "chatgpt", "bot":
		return "assistant"
	case "function", "observation":
		return "tool"
	}
	return role
}

// contentOf returns the text of a message's content: a string, a list of text
// parts, or nothing.
func contentOf(raw json.RawMessage) (string, error) {
	switch kind := kindOf(raw); kind {
	case "null", "nothing":
		return "", nil
	case "a string":
		return text(raw)
	case "an array":
		var parts []struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if json.Unmarshal(raw, &parts) != nil {
			return "", fmt.Errorf("is a list, expected parts with text")
		}
		var all strings.Builder
		for i, part := range parts {
			if part.Text == nil {
				return "", fmt.Errorf("part %d has type %q, expected text", i+1, clip([]byte(part.Type)))
			}
			all.WriteString(*part.Text)
		}
		return all.String(), nil
	default:
		return "", fmt.Errorf("is %s, expected a string", kind)
	}
}

// text returns the content of a JSON string.
func text(raw json.RawMessage) (string, error) {
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// looksLikeMessages reports whether a value is meant as a list of chat turns, even if Messages
// would reject it.
func looksLikeMessages(raw json.RawMessage) bool {
	if kindOf(raw) != "an array" {
		return false
	}
	var turns []map[string]json.RawMessage
	if json.Unmarshal(raw, &turns) != nil || len(turns) == 0 {
		return false
	}
	return turns[0]["role"] != nil || turns[0]["from"] != nil && turns[0]["value"] != nil
}

// beforeReply splits off a chat's final assistant turn. ok is false if the chat
// does not end with one or has no turn before it.
func beforeReply(chat []rollout.Message) (before []rollout.Message, reply rollout.Message, ok bool) {
	last := len(chat) - 1
	if last < 1 || chat[last].Role != "assistant" {
		return chat, rollout.Message{}, false
	}
	return chat[:last:last], chat[last], true
}

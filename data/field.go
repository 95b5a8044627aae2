package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// find returns the value of key, which may be a dotted path. The error lists the keys found.
func find(fields map[string]json.RawMessage, key string) (json.RawMessage, error) {
	if raw, ok := fields[key]; ok {
		return raw, nil
	}
	name, rest, nested := strings.Cut(key, ".")
	raw, ok := fields[name]
	if !nested || !ok {
		return nil, fmt.Errorf("no key %q, found %s", key, keys(fields))
	}
	for path := name; nested; path += "." + name {
		name, rest, nested = strings.Cut(rest, ".")
		inner, err := step(raw, name)
		if err != nil {
			return nil, fmt.Errorf("no key %q: %q is %w", key, path, err)
		}
		raw = inner
	}
	return raw, nil
}

// decoded returns the object or array that a string contains as JSON, as in tables
// written without nesting. It returns other values unchanged.
func decoded(raw json.RawMessage) json.RawMessage {
	if kindOf(raw) != "a string" {
		return raw
	}
	s, err := text(raw)
	if err != nil {
		return raw
	}
	kind := kindOf([]byte(s))
	isContainer := kind == "an object" || kind == "an array"
	if !isContainer || !json.Valid([]byte(s)) {
		return raw
	}
	return json.RawMessage(s)
}

// unfold replaces chats encoded as JSON strings with their decoded values.
func unfold(fields map[string]json.RawMessage) {
	for _, key := range having(fields, chatNames(), isText) {
		if chat := decoded(fields[key]); looksLikeMessages(chat) {
			fields[key] = chat
		}
	}
}

// step returns the field of an object with this name, or the element of an array with this
// index. The object or array may be encoded as a JSON string. The error describes raw.
func step(raw json.RawMessage, name string) (json.RawMessage, error) {
	raw = decoded(raw)
	switch kind := kindOf(raw); kind {
	case "an object":
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, err
		}
		if inner, ok := fields[name]; ok {
			return inner, nil
		}
		return nil, fmt.Errorf("an object with %s", keys(fields))
	case "an array":
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, err
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(elements) {
			return elements[i], nil
		}
		return nil, fmt.Errorf("an array of %d elements", len(elements))
	default:
		return nil, fmt.Errorf("%s", kind)
	}
}

// keys lists an object's first ten keys in order, for an error.
func keys(fields map[string]json.RawMessage) string {
	const shown = 10
	if len(fields) == 0 {
		return "none"
	}
	var quoted []string
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if len(quoted) == shown {
			return strings.Join(quoted, ", ") + fmt.Sprintf(" and %d more", len(fields)-shown)
		}
		quoted = append(quoted, strconv.Quote(clip([]byte(k))))
	}
	return strings.Join(quoted, ", ")
}

// kindOf returns the type of a JSON value, as an error names it. It reads only the first
// character.
func kindOf(raw []byte) string {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	default:
		return "a number"
	}
}

// clip returns the start of text, for an error.
func clip(text []byte) string {
	const limit = 40
	if len(text) <= limit {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:limit]), "") + "…" // without a character cut in two
}

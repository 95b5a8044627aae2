package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// tools has the types of parameters, by the names of functions and of their parameters.
type tools map[string]map[string]kinds

// kinds is the JSON Schema types that a parameter may have; empty if they are unknown.
type kinds []string

// UnmarshalJSON reads the types from a parameter's schema. Other schemas, such as anyOf, leave
// the types unknown.
func (k *kinds) UnmarshalJSON(data []byte) error {
	var schema struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(data, &schema)
	switch kind := schema.Type.(type) {
	case string:
		*k = kinds{kind}
	case []any:
		for _, one := range kind {
			if name, ok := one.(string); ok {
				*k = append(*k, name)
			}
		}
	}
	return nil
}

// parseTools reads a list of tools. It skips malformed ones.
func parseTools(list json.RawMessage) tools {
	var items []json.RawMessage
	_ = json.Unmarshal(list, &items)
	out := tools{}
	for _, item := range items {
		var tool struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if json.Unmarshal(item, &tool) != nil {
			continue
		}
		var parameters struct {
			Properties map[string]kinds `json:"properties"`
		}
		_ = json.Unmarshal(tool.Function.Parameters, &parameters)
		out[tool.Function.Name] = parameters.Properties
	}
	return out
}

// parse reads the calls of a body, the text between a format's bounds. It returns nil if the
// body is not well-formed; cut then reports whether more text could complete it, because
// what looked like its end may be part of an argument.
func (t tools) parse(f Format, body string) (calls []Call, cut bool) {
	switch f {
	case Tagged:
		var call object
		if cut, ok := decode(body, &call); !ok {
			return nil, cut
		}
		return []Call{call.Call}, false
	case List:
		var list []object
		if _, ok := decode(body, &list); !ok {
			return nil, false
		}
		for _, call := range list {
			calls = append(calls, call.Call)
		}
		return calls, false
	case Elements:
		if call, ok := t.elements(body); ok {
			return []Call{call}, false
		}
	case Fenced:
		return fenced(body), false
	}
	return nil, false
}

// object is a call as JSON.
type object struct{ Call }

// UnmarshalJSON accepts an object with a name, and arguments or parameters: an object, {} if
// missing.
func (o *object) UnmarshalJSON(data []byte) error {
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if err := json.Unmarshal(data, &call); err != nil {
		return err
	}
	arguments := call.Arguments
	if arguments == nil {
		arguments = call.Parameters
	}
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	if call.Name == "" || arguments[0] != '{' {
		return errors.New("no call")
	}
	o.Name, o.Arguments = call.Name, string(arguments)
	return nil
}

// decode decodes body, which must be one JSON value. cut reports whether it ends within the
// value.
func decode(body string, to any) (cut, ok bool) {
	dec := json.NewDecoder(strings.NewReader(body))
	if err := dec.Decode(to); err != nil {
		return errors.Is(err, io.ErrUnexpectedEOF), false
	}
	_, err := dec.Token()
	return false, err == io.EOF //nolint:errorlint // the reader does not wrap it
}

// sequence reads calls of known functions, one object after the other. It returns nil if body
// has anything else.
func (t tools) sequence(body string) (calls []Call) {
	for body != "" {
		var call object
		dec := json.NewDecoder(strings.NewReader(body))
		if dec.Decode(&call) != nil {
			return nil
		}
		if _, ok := t[call.Name]; !ok {
			return nil
		}
		calls = append(calls, call.Call)
		body = strings.TrimLeft(body[dec.InputOffset():], spaces+";,")
	}
	return calls
}

// elements reads <function=NAME> with a <parameter=KEY> for each argument.
func (t tools) elements(body string) (Call, bool) {
	const parameter, end = "<parameter=", "</parameter>"
	body, open := strings.CutPrefix(body, functionTag)
	body, closed := strings.CutSuffix(body, "</function>")
	name, rest, named := strings.Cut(body, ">")
	name = strings.TrimSpace(name)
	if !open || !closed || !named || name == "" {
		return Call{}, false
	}
	arguments := []byte{'{'}
	for rest = strings.TrimLeft(rest, spaces); rest != ""; {
		key, after, named := strings.Cut(rest, ">")
		key, open := strings.CutPrefix(key, parameter)
		if !open || !named {
			return Call{}, false
		}
		closing := 0 // offset of the end of the value
		for {        // a value may contain the text of the end
			i := strings.Index(after[closing:], end)
			if i < 0 {
				return Call{}, false
			}
			closing += i
			rest = strings.TrimLeft(after[closing+len(end):], spaces)
			if rest == "" || strings.HasPrefix(rest, parameter) {
				break
			}
			closing += len(end)
		}
		value := strings.TrimSuffix(strings.TrimPrefix(after[:closing], "\n"), "\n")
		if len(arguments) > 1 {
			arguments = append(arguments, ", "...)
		}
		key = strings.TrimSpace(key)
		arguments = append(append(arguments, quote(key)...), ": "...)
		arguments = append(arguments, t[name][key].value(value)...)
	}
	return Call{name, string(append(arguments, '}'))}, true
}

// value returns an element's text as JSON: as it is if the types allow that, else as a
// string.
func (k kinds) value(text string) []byte {
	trimmed := strings.TrimSpace(text)
	lower := strings.ToLower(trimmed)
	has := func(kind string) bool { return slices.Contains(k, kind) }
	isNull := lower == "null" && !slices.Equal(k, kinds{"string"})
	isBoolean := has("boolean") && (lower == "true" || lower == "false")
	switch {
	case isNull || isBoolean:
		return []byte(lower)
	case len(k) == 0 || has("string") || !json.Valid([]byte(trimmed)):
		return quote(text)
	}
	return []byte(trimmed)
}

// quote returns text as a JSON string, without escaping <, > and &.
func quote(text string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // strings are encodable
	return bytes.TrimSpace(out.Bytes())
}

// fenced reads calls in DeepSeek's tags, or returns nil.
func fenced(body string) (calls []Call) {
	for body != "" {
		one, rest, _ := strings.Cut(body, fenceClose)
		one, open := strings.CutPrefix(one, fenceOpen+"function"+fenceName)
		name, arguments, named := strings.Cut(one, "\n```json\n")
		arguments, closed := strings.CutSuffix(strings.TrimRight(arguments, spaces), "```")
		var object map[string]json.RawMessage
		if _, ok := decode(arguments, &object); !ok || !open || !named || !closed || name == "" || object == nil {
			return nil
		}
		calls = append(calls, Call{name, strings.TrimSpace(arguments)})
		body = strings.TrimLeft(rest, spaces)
	}
	return calls
}

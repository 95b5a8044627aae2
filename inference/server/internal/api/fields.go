package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/easyrl/easyrl/internal/plain"
)

// seed is any 64-bit integer, signed or unsigned.
type seed uint64

// UnmarshalJSON converts a negative number to the unsigned number with the same bits.
func (s *seed) UnmarshalJSON(data []byte) error {
	if u, err := strconv.ParseUint(string(data), 10, 64); err == nil {
		*s = seed(u)
		return nil
	}
	i, err := strconv.ParseInt(string(data), 10, 64)
	*s = seed(i)
	return err
}

// stops is one string or several.
type stops []string

// UnmarshalJSON accepts a string or an array of strings.
func (s *stops) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		*s = make(stops, 1)
		return json.Unmarshal(data, &(*s)[0])
	}
	return json.Unmarshal(data, (*[]string)(s))
}

// tokenIDs is a list of token IDs.
type tokenIDs []int32

// UnmarshalJSON refuses null among the IDs.
func (ids *tokenIDs) UnmarshalJSON(data []byte) error {
	if bytes.IndexByte(data, 'n') >= 0 { // json.Unmarshal would turn null into 0
		return errors.New("null")
	}
	return json.Unmarshal(data, (*[]int32)(ids))
}

// object is a JSON object.
type object json.RawMessage

// UnmarshalJSON refuses other values.
func (o *object) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return errors.New("no object")
	}
	*o = append((*o)[:0], data...)
	return nil
}

// field is a field of a request.
type field struct {
	name string
	dst  any    // pointer to the decoded value
	want string // valid values, for errors
}

// bind returns the field called name, which decode stores in *dst.
func bind(name string, dst any, want string) field { return field{name, dst, want} }

// decode decodes a JSON object into fields. A null value counts as absent. It refuses fields that
// are not listed, unless they cannot change the answer. Its errors are *Failure.
func decode(data []byte, fields []field) error {
	if !utf8.Valid(data) {
		return Invalid("", "body is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return Invalid("", "body: expected a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return Invalid("", "body: %v", err)
		}
		name, ok := key.(string)
		if !ok {
			return Invalid("", "body: %v, expected a field name", key)
		}
		name = fmt.Sprintf("%.100s", name) // bounds error messages; known names are shorter
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return Invalid(name, "body: %s: %v", name, err)
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case string(raw) == "null":
		case i >= 0:
			if json.Unmarshal(raw, fields[i].dst) != nil {
				return Invalid(name, "%s %.100s, expected %s", name, oneLine(raw), fields[i].want)
			}
		default:
			if err := refuse(name, raw); err != nil {
				return err
			}
		}
	}
	if _, err := dec.Token(); err != nil {
		return Invalid("", "body: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Invalid("", "body: data after the JSON object")
	}
	return nil
}

// refuse returns an error unless the field name, which no caller of decode knows, has no effect.
func refuse(name string, raw json.RawMessage) error {
	values := neutral()[name]
	switch {
	case slices.Contains(harmless(), name) || isOneOf(raw, values):
		return nil
	case values == nil:
		return Invalid(name, "%.100s %.100s is not supported, expected no such field", plain.Text(name), oneLine(raw))
	}
	return Invalid(name, "%s %.100s is not supported, expected %s", name, oneLine(raw), values[0])
}

// oneLine returns a JSON value as one line without redundant white space.
func oneLine(raw json.RawMessage) string { return string(bytes.Join(bytes.Fields(raw), []byte{' '})) }

// isOneOf reports whether raw equals one of values: as numbers, or as JSON without white space.
func isOneOf(raw json.RawMessage, values []string) bool {
	got, err := strconv.ParseFloat(string(raw), 64)
	for _, v := range values {
		want, wantErr := strconv.ParseFloat(v, 64)
		if v == string(bytes.Join(bytes.Fields(raw), nil)) || (err == nil && wantErr == nil && got == want) {
			return true
		}
	}
	return false
}

// harmless returns the fields that do not affect what is sampled.
func harmless() []string {
	return []string{"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
		"prompt_cache_retention", "prompt_cache_options", "request_id", "session_id", "cache_salt", "priority",
		"include_reasoning", "routed_experts_prompt_start", "token_offsets"}
}

// neutral returns, for each unsupported field, the values that change nothing and are therefore
// accepted. Errors name the first.
func neutral() map[string][]string {
	return map[string][]string{
		"presence_penalty":              {"0"},
		"frequency_penalty":             {"0"},
		"min_tokens":                    {"0"},
		"repetition_penalty":            {"1"},
		"length_penalty":                {"1"},
		"logit_bias":                    {"{}"},
		"vllm_xargs":                    {"{}"},
		"bad_words":                     {"[]"},
		"functions":                     {"[]"},
		"documents":                     {"[]"},
		"response_format":               {`{"type":"text"}`},
		"modalities":                    {`["text"]`},
		"function_call":                 {`"none"`, `"auto"`},
		"truncation_side":               {`"left"`},
		"suffix":                        {`""`},
		"use_beam_search":               {"false"},
		"continue_final_message":        {"false"},
		"skip_special_tokens":           {"true"},
		"spaces_between_special_tokens": {"true"},
		"add_generation_prompt":         {"true"},
		"detokenize":                    {"true"},
	}
}

// decodePrompts decodes one prompt or an array of up to limit prompts, each as text or as token IDs.
// Either texts or ids is nil. raw is empty or valid JSON without outer white space.
func decodePrompts(raw json.RawMessage, limit int) (texts []string, ids [][]int32, err error) {
	const want = "a string, strings, token ids or arrays of them"
	wrong := func() error { return Invalid("prompt", "prompt: expected %s, at most %d prompts", want, limit) }
	if len(raw) == 0 {
		return nil, nil, Invalid("prompt", "no prompt, expected %s", want)
	}
	if raw[0] == '"' {
		texts = make([]string, 1)
		return texts, nil, json.Unmarshal(raw, &texts[0])
	}
	if raw[0] != '[' {
		return nil, nil, wrong()
	}
	first := bytes.TrimLeft(raw[1:], " \t\r\n")[0]      // the first byte of the first element, or ]
	if first != '"' && bytes.IndexByte(raw, 'n') >= 0 { // json.Unmarshal would turn null into 0
		return nil, nil, wrong()
	}
	if first != '"' && first != '[' { // one prompt of token IDs
		ids = make([][]int32, 1)
		if json.Unmarshal(raw, &ids[0]) != nil {
			return nil, nil, wrong()
		}
		return nil, ids, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // the opening bracket
	for n := 0; dec.More(); n++ {
		if n == limit {
			return nil, nil, wrong()
		}
		if first == '"' {
			var text *string // nil after null
			err = dec.Decode(&text)
			if text != nil {
				texts = append(texts, *text)
			}
		} else {
			var prompt []int32
			err = dec.Decode(&prompt)
			ids = append(ids, prompt)
		}
		if err != nil || len(texts)+len(ids) != n+1 { // null adds no text
			return nil, nil, wrong()
		}
	}
	return texts, ids, nil
}

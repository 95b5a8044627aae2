package server

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/easyrl/easyrl/inference"
)

const (
	maxPrompts   = 1024 // of a request
	maxResponses = 4096 // of a request
	maxStops     = 64   // stop strings, and stop tokens
	maxTop       = 20   // alternatives to a token
)

// request is what a client asks for.
type request struct {
	chat            bool
	model           string
	prompt          json.RawMessage
	messages, tools json.RawMessage
	toolChoice      json.RawMessage
	n, sampleIndex  int
	maxTokens       *int
	temperature     float32
	topP, minP      float32
	topK            int
	seed            *seed
	stop            stops
	stopIDs         []int32
	ignoreEOS       bool
	includeStop     bool
	logprobs        *int // alternatives to each token; nil for none at all
	promptLogprobs  *int
	echo            bool
	returnIDs       bool
	tokensAsIDs     bool
	stream          bool
	usage           bool   // at the end of a stream
	version         *int64 // of the weights
}

// seed is any integer of 64 bits.
type seed uint64

// UnmarshalJSON takes negative numbers too, by their bits.
func (s *seed) UnmarshalJSON(data []byte) error {
	if u, err := strconv.ParseUint(string(data), 10, 64); err == nil {
		*s = seed(u)
		return nil
	}
	i, err := strconv.ParseInt(string(data), 10, 64)
	*s = seed(i)
	return err
}

// stops are one string or several.
type stops []string

// UnmarshalJSON takes a string or an array of strings.
func (s *stops) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		*s = make(stops, 1)
		return json.Unmarshal(data, &(*s)[0])
	}
	return json.Unmarshal(data, (*[]string)(s))
}

// field is a field of a request, where its value goes and what it must be.
type field struct {
	name string
	dst  any
	want string
}

// decodeRequest reads a request for completions. Its errors are failures.
func decodeRequest(data []byte, chat bool) (*request, error) {
	r := &request{chat: chat, n: 1, temperature: 1, topP: 1}
	var usage struct {
		Include    bool `json:"include_usage"`
		Continuous bool `json:"continuous_usage_stats"`
		Obfuscated bool `json:"include_obfuscation"`
	}
	var logprobs bool
	var top, limit *int
	fields := []field{
		{"model", &r.model, "a string"}, {"n", &r.n, "an integer"}, {"sample_index", &r.sampleIndex, "an integer"},
		{"max_tokens", &r.maxTokens, "an integer"}, {"temperature", &r.temperature, "a number"},
		{"top_p", &r.topP, "a number"}, {"min_p", &r.minP, "a number"}, {"top_k", &r.topK, "an integer"},
		{"seed", &r.seed, "an integer of 64 bits"}, {"stop", &r.stop, "a string or strings"},
		{"stop_token_ids", &r.stopIDs, "token ids"}, {"ignore_eos", &r.ignoreEOS, "true or false"},
		{"include_stop_str_in_output", &r.includeStop, "true or false"},
		{"prompt_logprobs", &r.promptLogprobs, "an integer"}, {"echo", &r.echo, "true or false"},
		{"return_token_ids", &r.returnIDs, "true or false"}, {"return_tokens_as_token_ids", &r.tokensAsIDs, "true or false"},
		{"stream", &r.stream, "true or false"}, {"stream_options", &usage, "an object"},
		{"weight_version", &r.version, "an integer"},
	}
	if chat {
		fields = append(fields, field{"messages", &r.messages, "messages"}, field{"tools", &r.tools, "tools"},
			field{"tool_choice", &r.toolChoice, "a choice"}, field{"logprobs", &logprobs, "true or false"},
			field{"top_logprobs", &top, "an integer"}, field{"max_completion_tokens", &limit, "an integer"})
	} else {
		fields = append(fields, field{"prompt", &r.prompt, "a prompt"}, field{"logprobs", &r.logprobs, "an integer"})
	}
	if err := decodeObject(data, fields); err != nil {
		return nil, err
	}
	if usage.Continuous {
		return nil, invalid("stream_options", "stream_options.continuous_usage_stats is not supported")
	}
	r.usage = usage.Include
	if limit != nil {
		r.maxTokens = limit
	}
	switch {
	case chat && logprobs:
		r.logprobs = new(int)
		if top != nil {
			r.logprobs = top
		}
	case top != nil && *top != 0:
		return nil, invalid("top_logprobs", "top_logprobs without logprobs, expected logprobs = true")
	}
	return r, r.validate()
}

// validate checks what does not depend on the model and not on inference.
func (r *request) validate() error {
	within := func(name string, v *int, low, high int) error {
		if v != nil && (*v < low || *v > high) {
			return invalid(name, "%s %d, expected %d to %d", name, *v, low, high)
		}
		return nil
	}
	lowest := 1
	if r.echo {
		lowest = 0
	}
	for _, err := range []error{
		within("n", &r.n, 1, maxResponses), within("sample_index", &r.sampleIndex, 0, inference.MaxResponses-r.n),
		within("max_tokens", r.maxTokens, lowest, 1<<31-1), within("logprobs", r.logprobs, 0, maxTop),
		within("prompt_logprobs", r.promptLogprobs, 0, 0),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case len(r.stop) > maxStops || len(r.stopIDs) > maxStops:
		return invalid("stop", "%d stop strings and %d stop tokens, expected at most %d of each", len(r.stop), len(r.stopIDs), maxStops)
	case r.version != nil && *r.version < 0:
		return invalid("weight_version", "weight_version %d, expected 0 or more", *r.version)
	case r.topK < -1:
		return invalid("top_k", "top_k %d, expected -1 or more", r.topK)
	case r.stream && r.promptLogprobs != nil:
		return invalid("prompt_logprobs", "prompt_logprobs in a stream is not supported")
	case r.stream && r.logprobs != nil && *r.logprobs > 0:
		return invalid(r.topName(), "%s above 0 in a stream is not supported", r.topName())
	case r.stream && r.logprobs != nil && r.echo:
		return invalid("echo", "echo with logprobs in a stream is not supported")
	case r.echo && r.logprobs != nil && *r.logprobs > 0:
		return invalid("logprobs", "logprobs above 0 with echo is not supported: a prompt's tokens have no alternatives")
	case r.echo && r.chat:
		return invalid("echo", "echo of a conversation is not supported")
	}
	r.topK = max(r.topK, 0)
	return r.validateChat()
}

func (r *request) topName() string {
	if r.chat {
		return "top_logprobs"
	}
	return "logprobs"
}

// validateChat checks that the conversation is text. Calls of tools stay text
// in the answer, so nobody may expect them to be taken out of it.
func (r *request) validateChat() error {
	if !r.chat {
		return nil
	}
	choice := string(bytes.TrimSpace(r.toolChoice))
	tools := slices.Contains([]string{"", "[]"}, string(bytes.Join(bytes.Fields(r.tools), nil)))
	switch {
	case choice != "" && choice != `"none"` && (choice != `"auto"` || !tools):
		return invalid("tool_choice", "tool_choice %.100s is not supported, expected \"none\"", choice)
	case choice == "" && !tools:
		return invalid("tools", "tools without tool_choice \"none\" are not supported: calls stay text")
	}
	var messages []struct {
		Role    *string         `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(r.messages, &messages); err != nil || len(messages) == 0 {
		return invalid("messages", "messages: expected an array of at least one message, each an object with a role")
	}
	for i, m := range messages {
		if m.Role == nil {
			return invalid("messages", "messages[%d] has no role", i)
		}
		if len(m.Content) == 0 || m.Content[0] == '"' || string(m.Content) == "null" {
			continue
		}
		var parts []struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(m.Content, &parts) != nil {
			return invalid("messages", "messages[%d].content: expected a string or parts", i)
		}
		for j, p := range parts {
			if p.Type != "text" {
				return invalid("messages", "messages[%d].content[%d] is of type %.40q, expected text", i, j, p.Type)
			}
		}
	}
	return nil
}

// decodeObject reads a JSON object into fields. A field that is not among them
// is refused unless it says what holds anyway; null is as good as nothing.
func decodeObject(data []byte, fields []field) error {
	if !utf8.Valid(data) {
		return invalid("", "body is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return invalid("", "body: expected a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return invalid("", "body: %v", err)
		}
		name, ok := key.(string)
		if !ok {
			return invalid("", "body: %v, expected a name", key)
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 && !isKnown(name) {
			return invalid(name, "%.100q is not supported", name)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return invalid(name, "body: %s: %v", name, err)
		}
		switch {
		case string(raw) == "null":
		case i < 0 && !isNeutral(name, raw):
			return invalid(name, "%s %.100s is not supported, expected %s", name, raw, neutral(name)[0])
		case i >= 0:
			if json.Unmarshal(raw, fields[i].dst) != nil {
				return invalid(name, "%s %.100s, expected %s", name, raw, fields[i].want)
			}
		}
	}
	if _, err := dec.Token(); err != nil {
		return invalid("", "body: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return invalid("", "body: more after the object")
	}
	return nil
}

// isKnown says whether a field that we do not use is one of the dialect.
func isKnown(name string) bool { return isHarmless(name) || neutral(name) != nil }

// isNeutral says whether a field's value changes nothing.
func isNeutral(name string, raw json.RawMessage) bool {
	if isHarmless(name) {
		return true
	}
	got, err := strconv.ParseFloat(string(raw), 64)
	for _, v := range neutral(name) {
		want, wantErr := strconv.ParseFloat(v, 64)
		if v == string(bytes.Join(bytes.Fields(raw), nil)) || (err == nil && wantErr == nil && got == want) {
			return true
		}
	}
	return false
}

// isHarmless names fields that have no bearing on what is sampled.
func isHarmless(name string) bool {
	switch name {
	case "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
		"request_id", "session_id", "cache_salt", "priority", "parallel_tool_calls":
		return true
	}
	return false
}

// neutral are the values that a field may have which is not supported, the
// first to be named in errors; nil for an unknown field.
func neutral(name string) []string {
	switch name {
	case "presence_penalty", "frequency_penalty", "min_tokens":
		return []string{"0"}
	case "repetition_penalty", "length_penalty", "best_of":
		return []string{"1"}
	case "logit_bias", "chat_template_kwargs", "vllm_xargs":
		return []string{"{}"}
	case "bad_words", "functions", "documents":
		return []string{"[]"}
	case "response_format":
		return []string{`{"type":"text"}`}
	case "modalities":
		return []string{`["text"]`}
	case "function_call":
		return []string{`"none"`, `"auto"`}
	case "suffix":
		return []string{`""`}
	case "use_beam_search", "continue_final_message":
		return []string{"false"}
	case "skip_special_tokens", "spaces_between_special_tokens", "add_generation_prompt", "detokenize":
		return []string{"true"}
	case "add_special_tokens", "allowed_token_ids", "audio", "chat_template", "guided_choice", "guided_grammar", "guided_json", "guided_regex",
		"kv_transfer_params", "logits_processors", "moderation", "prediction", "reasoning_effort", "structured_outputs", "truncate_prompt_tokens",
		"verbosity", "web_search_options":
		return []string{"null"}
	}
	return nil
}

// decodePrompts reads a prompt or several, as text or as token ids. Of texts
// and ids one is nil.
func decodePrompts(raw json.RawMessage) (texts []string, ids [][]int32, err error) {
	const want = "a string, strings, token ids or arrays of them"
	wrong := func() error { return invalid("prompt", "prompt: expected %s, at most %d prompts", want, maxPrompts) }
	if len(raw) == 0 {
		return nil, nil, invalid("prompt", "no prompt, expected %s", want)
	}
	if raw[0] == '"' {
		texts = make([]string, 1)
		return texts, nil, json.Unmarshal(raw, &texts[0])
	}
	if raw[0] != '[' {
		return nil, nil, wrong()
	}
	first := bytes.TrimLeft(raw[1:], " \t\r\n")
	if first[0] != '"' && bytes.IndexByte(raw, 'n') >= 0 { // null would become 0
		return nil, nil, wrong()
	}
	if first[0] != '"' && first[0] != '[' {
		ids = make([][]int32, 1)
		if json.Unmarshal(raw, &ids[0]) != nil {
			return nil, nil, wrong()
		}
		return nil, ids, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // the bracket
	for n := 0; dec.More(); n++ {
		if n == maxPrompts {
			return nil, nil, wrong()
		}
		if first[0] == '"' {
			var text *string
			err = dec.Decode(&text)
			if text != nil {
				texts = append(texts, *text)
			}
		} else {
			var prompt []int32
			err = dec.Decode(&prompt)
			ids = append(ids, prompt)
		}
		if err != nil || len(texts)+len(ids) != n+1 {
			return nil, nil, wrong()
		}
	}
	return texts, ids, nil
}

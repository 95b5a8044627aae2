package server

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/fields"
)

const (
	maxPrompts   = 1024 // of a request
	maxResponses = 4096 // of a request
	maxStops     = 64   // stop strings, and stop tokens
	maxTop       = 20   // alternatives to a token
	// maxAlternatives to all tokens of a request; one takes some 30 bytes.
	maxAlternatives = 1 << 24
)

// request is what a client asks for.
type request struct {
	chat            bool
	model           string
	prompt          json.RawMessage
	messages, tools json.RawMessage
	toolChoice      json.RawMessage
	n, sampleIndex  int
	bestOf          *int
	maxTokens       *int
	temperature     float32
	topP, minP      float32
	topK            int
	seed            *fields.Seed
	stop            fields.Stops
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
	usageSoFar      bool   // with each of its chunks
	addSpecial      *bool  // as the start of a sequence has; nil for what is usual
	version         *int64 // of the weights
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
	list := []fields.Field{
		fields.To("model", &r.model, "a string"), fields.To("n", &r.n, "an integer"), fields.To("sample_index", &r.sampleIndex, "an integer"),
		fields.To("max_tokens", &r.maxTokens, "an integer"), fields.To("temperature", &r.temperature, "a number"),
		fields.To("top_p", &r.topP, "a number"), fields.To("min_p", &r.minP, "a number"), fields.To("top_k", &r.topK, "an integer"),
		fields.To("seed", &r.seed, "an integer of 64 bits"), fields.To("stop", &r.stop, "a string or strings"),
		fields.To("stop_token_ids", &r.stopIDs, "token ids"), fields.To("ignore_eos", &r.ignoreEOS, "true or false"),
		fields.To("include_stop_str_in_output", &r.includeStop, "true or false"),
		fields.To("prompt_logprobs", &r.promptLogprobs, "an integer"), fields.To("echo", &r.echo, "true or false"),
		fields.To("return_token_ids", &r.returnIDs, "true or false"), fields.To("return_tokens_as_token_ids", &r.tokensAsIDs, "true or false"),
		fields.To("stream", &r.stream, "true or false"), fields.To("stream_options", &usage, "an object"),
		fields.To("weight_version", &r.version, "an integer"), fields.To("add_special_tokens", &r.addSpecial, "true or false"),
	}
	if chat {
		list = append(list, fields.To("messages", &r.messages, "messages"), fields.To("tools", &r.tools, "tools"),
			fields.To("tool_choice", &r.toolChoice, "a choice"), fields.To("logprobs", &logprobs, "true or false"),
			fields.To("top_logprobs", &top, "an integer"), fields.To("max_completion_tokens", &limit, "an integer"))
	} else {
		list = append(list, fields.To("prompt", &r.prompt, "a prompt"), fields.To("logprobs", &r.logprobs, "an integer"),
			fields.To("best_of", &r.bestOf, "an integer"))
	}
	if err := fields.Decode(data, list); err != nil {
		return nil, err
	}
	r.usage, r.usageSoFar = usage.Include, usage.Include && usage.Continuous
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
	alternatives := "logprobs"
	if r.chat {
		alternatives = "top_logprobs"
	}
	lowest := 1
	if r.echo {
		lowest = 0
	}
	for _, err := range []error{
		within("n", &r.n, 1, maxResponses), within("sample_index", &r.sampleIndex, 0, math.MaxInt32-r.n),
		within("max_tokens", r.maxTokens, lowest, 1<<31-1), within(alternatives, r.logprobs, 0, maxTop),
		within("prompt_logprobs", r.promptLogprobs, 0, 0),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case len(r.stop) > maxStops || len(r.stopIDs) > maxStops:
		return invalid("stop", "%d stop strings and %d stop tokens, expected at most %d of each", len(r.stop), len(r.stopIDs), maxStops)
	case r.bestOf != nil && *r.bestOf != r.n:
		return invalid("best_of", "best_of %d is not supported, expected n, which is %d", *r.bestOf, r.n)
	case r.addSpecial != nil && *r.addSpecial == r.chat: // a template writes its own
		return invalid("add_special_tokens", "add_special_tokens %v is not supported, expected %v", *r.addSpecial, !r.chat)
	case r.version != nil && *r.version < 0:
		return invalid("weight_version", "weight_version %d, expected 0 or more", *r.version)
	case inference.CheckTemperature(r.temperature) != nil:
		return invalid("temperature", "temperature %v", inference.CheckTemperature(r.temperature))
	case r.topP <= 0 || r.topP > 1:
		return invalid("top_p", "top_p %v, expected more than 0 and at most 1", r.topP)
	case r.minP < 0 || r.minP > 1:
		return invalid("min_p", "min_p %v, expected 0 to 1", r.minP)
	case r.topK < -1 || r.topK > math.MaxInt32:
		return invalid("top_k", "top_k %d, expected -1 to %d", r.topK, math.MaxInt32)
	case slices.Contains(r.stop, ""):
		return invalid("stop", "stop has an empty string, expected text")
	case r.stream && r.promptLogprobs != nil:
		return invalid("prompt_logprobs", "prompt_logprobs in a stream is not supported")
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

// validateChat checks that the conversation is text. Calls of tools stay text
// in the answer, so nobody may expect them to be taken out of it.
func (r *request) validateChat() error {
	if !r.chat {
		return nil
	}
	choice := string(bytes.Join(bytes.Fields(r.toolChoice), []byte{' '}))
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

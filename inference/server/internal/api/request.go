// Package api decodes and validates requests in vLLM's dialect of OpenAI's interface, and
// writes their answers.
//
// It reads and writes bytes; package server does the HTTP.
package api

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/easyrl/easyrl/inference"
)

// Limits of a request.
const (
	MaxResponses = 4096 // per request
	maxPrompts   = 1024 // per request
	maxStops     = 64   // stop strings, and stop tokens
	maxTop       = 20   // alternatives per token
	maxRequestID = 256  // bytes

	// maxAlternatives limits the alternatives of a request; each takes about 30 bytes.
	maxAlternatives = 1 << 24
)

// Request is a client's request for a text completion, a chat answer or token IDs.
type Request struct {
	Chat            bool
	Generate        bool   // token IDs in, token IDs out
	RequestID       string // chosen by the client; may be empty
	Model           string
	Prompt          json.RawMessage
	TokenIDs        tokenIDs // the prompt if Generate is set
	Messages, Tools json.RawMessage
	ToolChoice      json.RawMessage
	ParallelCalls   bool
	Variables       json.RawMessage // an object of further variables of the chat template
	N, SampleIndex  int             // responses per prompt, and the index of the first of them
	BestOf          *int            // must equal N if set
	MaxTokens       *int            // per response; nil for the default, see Job.limit
	Temperature     float64
	TopP, MinP      float64
	TopK            int // 0 keeps all tokens
	Seed            *seed
	Stop            stops
	StopIDs         tokenIDs
	IgnoreEOS       bool
	IncludeStop     bool // keep the stop string or token in the text
	Truncate        *int // number of a prompt's last tokens to keep; -1 keeps as many as fit
	Logprobs        *int // alternatives per token; nil for no log-probabilities
	PromptLogprobs  *int // the same for the prompt's tokens
	Echo            bool // begin the text with the prompt
	ReturnIDs       bool // return the token IDs too
	TokensAsIDs     bool // name tokens by their IDs
	Stream          bool
	StreamChoices   bool   // send each choice as soon as it is complete
	Usage           bool   // send the usage at the end of a stream
	UsageSoFar      bool   // send the usage so far with each chunk
	AddSpecial      *bool  // add the special tokens that start a sequence; nil for the default
	Version         *int64 // required version of the weights; nil accepts any
}

// Decode decodes a completion or chat request. Its errors are *Failure.
func Decode(data []byte, chat bool) (*Request, error) {
	r := &Request{Chat: chat, N: 1, Temperature: 1, TopP: 1, ParallelCalls: true}
	var x extras
	if err := decode(data, r.fields(&x)); err != nil {
		return nil, err
	}
	r.Usage, r.UsageSoFar = x.usage.Include, x.usage.Include && x.usage.Continuous
	if x.limit != nil {
		r.MaxTokens = x.limit
	}
	switch {
	case chat && x.logprobs:
		r.Logprobs = new(int)
		if x.top != nil {
			r.Logprobs = x.top
		}
	case x.top != nil && *x.top != 0:
		return nil, Invalid("top_logprobs", "top_logprobs is %d without logprobs, expected logprobs true", *x.top)
	}
	return r, r.validate()
}

// extras holds fields that Decode turns into fields of Request.
type extras struct {
	usage struct {
		Include    bool `json:"include_usage"`
		Continuous bool `json:"continuous_usage_stats"`
		Obfuscated bool `json:"include_obfuscation"`
	}
	logprobs   bool
	top, limit *int
}

// fields returns the fields of a completion or chat request.
func (r *Request) fields(x *extras) []field {
	list := append(r.samplingFields(), bind("model", &r.Model, "a string"), bind("echo", &r.Echo, "true or false"),
		bind("return_token_ids", &r.ReturnIDs, "true or false"),
		bind("return_tokens_as_token_ids", &r.TokensAsIDs, "true or false"),
		bind("stream", &r.Stream, "true or false"), bind("stream_options", &x.usage, "an object"),
		bind("stream_choices", &r.StreamChoices, "true or false"),
		bind("weight_version", &r.Version, "an integer"), bind("add_special_tokens", &r.AddSpecial, "true or false"))
	if !r.Chat {
		return append(list, bind("prompt", &r.Prompt, "a prompt"), bind("logprobs", &r.Logprobs, "an integer"),
			bind("best_of", &r.BestOf, "an integer"))
	}
	return append(append(list, r.conversation()...), bind("tool_choice", &r.ToolChoice, "a choice"),
		bind("parallel_tool_calls", &r.ParallelCalls, "true or false"), bind("logprobs", &x.logprobs, "true or false"),
		bind("top_logprobs", &x.top, "an integer"), bind("max_completion_tokens", &x.limit, "an integer"))
}

// samplingFields returns the fields that set how responses are sampled.
func (r *Request) samplingFields() []field {
	return []field{
		bind("n", &r.N, "an integer"), bind("sample_index", &r.SampleIndex, "an integer"),
		bind("max_tokens", &r.MaxTokens, "an integer"), bind("temperature", &r.Temperature, "a number"),
		bind("top_p", &r.TopP, "a number"), bind("min_p", &r.MinP, "a number"), bind("top_k", &r.TopK, "an integer"),
		bind("seed", &r.Seed, "an integer of 64 bits"), bind("stop", &r.Stop, "a string or strings"),
		bind("stop_token_ids", &r.StopIDs, "token ids"), bind("ignore_eos", &r.IgnoreEOS, "true or false"),
		bind("include_stop_str_in_output", &r.IncludeStop, "true or false"),
		bind("prompt_logprobs", &r.PromptLogprobs, "an integer"),
		bind("truncate_prompt_tokens", &r.Truncate, "an integer"),
	}
}

// validate checks what does not depend on the model. It replaces a TopK of -1 by 0; both keep all
// tokens.
func (r *Request) validate() error {
	within := func(name string, v *int, low, high int) error {
		if v != nil && (*v < low || *v > high) {
			return Invalid(name, "%s %d, expected %d to %d", name, *v, low, high)
		}
		return nil
	}
	alternatives := "logprobs"
	if r.Chat {
		alternatives = "top_logprobs"
	}
	lowest := 1
	if r.Echo {
		lowest = 0
	}
	for _, err := range []error{
		within("n", &r.N, 1, MaxResponses), within("sample_index", &r.SampleIndex, 0, math.MaxInt32-r.N),
		within("max_tokens", r.MaxTokens, lowest, 1<<31-1), within(alternatives, r.Logprobs, 0, maxTop),
		within("prompt_logprobs", r.PromptLogprobs, 0, maxTop),
		within("truncate_prompt_tokens", r.Truncate, -1, math.MaxInt32),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case len(r.Stop) > maxStops || len(r.StopIDs) > maxStops:
		return Invalid("stop", "%d stop strings and %d stop tokens, expected at most %d of each", len(r.Stop),
			len(r.StopIDs), maxStops)
	case r.BestOf != nil && *r.BestOf != r.N:
		return Invalid("best_of", "best_of %d is not supported, expected n, which is %d", *r.BestOf, r.N)
	case r.AddSpecial != nil && *r.AddSpecial == r.Chat: // a chat template adds its own
		return Invalid("add_special_tokens", "add_special_tokens %v is not supported, expected %v", *r.AddSpecial,
			!r.Chat)
	case r.Version != nil && *r.Version < 0:
		return Invalid("weight_version", "weight_version %d, expected 0 or more", *r.Version)
	case inference.CheckTemperature(r.Temperature) != nil:
		return Invalid("temperature", "temperature %v", inference.CheckTemperature(r.Temperature))
	case r.TopP <= 0 || r.TopP > 1:
		return Invalid("top_p", "top_p %v, expected more than 0 and at most 1", r.TopP)
	case r.MinP < 0 || r.MinP > 1:
		return Invalid("min_p", "min_p %v, expected 0 to 1", r.MinP)
	case r.TopK < -1 || r.TopK > math.MaxInt32:
		return Invalid("top_k", "top_k %d, expected -1 to %d", r.TopK, math.MaxInt32)
	case slices.Contains(r.Stop, ""):
		return Invalid("stop", "stop has an empty string, expected text")
	case r.Truncate != nil && *r.Truncate == 0:
		return Invalid("truncate_prompt_tokens", "truncate_prompt_tokens is 0, expected -1 or at least 1")
	case r.Stream && r.StreamChoices:
		return Invalid("stream_choices", "stream_choices true is not supported with stream true, expected one of them")
	case r.Stream && r.PromptLogprobs != nil:
		return Invalid("prompt_logprobs", "prompt_logprobs %d is not supported with stream true, expected stream false",
			*r.PromptLogprobs)
	case r.Stream && r.Logprobs != nil && r.Echo:
		return Invalid("echo", "echo true with logprobs is not supported with stream true, expected stream false")
	case r.Echo && r.Chat:
		return Invalid("echo", "echo true is not supported for a chat, expected false")
	}
	r.TopK = max(r.TopK, 0)
	return r.validateChat()
}

package openapi

import (
	"reflect"

	"github.com/easyrl/easyrl/inference/server/internal/openai"
)

// special returns the schema of a field whose Go type says too little.
func (b *builder) special(field string) (Schema, bool) {
	number := Schema{"type": []any{"number", "null"}}
	switch field {
	case "Choice.stop_reason":
		return Schema{"type": []any{"string", "integer", "null"}}, true
	case "Choice.prompt_logprobs", "Answer.prompt_logprobs":
		b.components["PromptLogprobs"] = arrayOf(nullable(Schema{"type": "object", "additionalProperties": object(
			Schema{"logprob": Schema{"type": "number"}, "decoded_token": Schema{"type": "string"}}, []string{"logprob", "decoded_token"})}))
		return reference("PromptLogprobs"), true
	case "TextLogprobs.token_logprobs":
		return arrayOf(number), true
	case "Choice.finish_reason":
		return Schema{"type": []any{"string", "null"}, "enum": []any{"stop", "length", "tool_calls", nil}}, true
	}
	return nil, false
}

// answers adds the answers to the three kinds of completion requests.
func (b *builder) answers() {
	answer, choice := reflect.TypeFor[openai.Answer](), reflect.TypeFor[openai.Choice]()
	logprobs := func(t reflect.Type) Schema { return Schema{"logprobs": nullable(b.of(t))} }
	list := func(name string) Schema { return Schema{"choices": arrayOf(reference(name))} }
	text, chat, ids := []string{"message", "delta", "weight_versions"}, []string{"text", "delta", "prompt_token_ids", "weight_versions"},
		[]string{"text", "message", "delta", "prompt_token_ids", "prompt_logprobs"}
	b.variant("CompletionChoice", choice, text, []string{"text"}, logprobs(reflect.TypeFor[openai.TextLogprobs]()))
	b.variant("ChatChoice", choice, chat, []string{"message"}, logprobs(reflect.TypeFor[openai.ChatLogprobs]()))
	b.variant("GenerateChoice", choice, ids, []string{"token_ids", "weight_versions"}, logprobs(reflect.TypeFor[openai.IDLogprobs]()))
	idsOnly := []string{"request_id", "output_mode", "prompt_logprobs"}
	named := []string{"id", "object", "usage"}
	b.variant("CompletionAnswer", answer, append(idsOnly, "prompt_token_ids"), named, list("CompletionChoice"))
	b.variant("ChatAnswer", answer, idsOnly, named, list("ChatChoice"))
	b.variant("GenerateAnswer", answer, []string{"id", "object"}, []string{"request_id", "output_mode", "usage"}, list("GenerateChoice"))
}

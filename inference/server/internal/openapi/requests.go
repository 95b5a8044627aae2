package openapi

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/job"
	"github.com/easyrl/easyrl/inference/server/internal/lease"
)

// request adds the schema of a request's fields. null counts as absent, for unknown fields
// too. Other fields may have the values that have no effect.
func (b *builder) request(name string, list []fields.Field, required ...string) {
	properties := Schema{}
	for _, field := range fields.Harmless() {
		properties[field] = Schema{"description": "Has no effect."}
	}
	for field, values := range fields.Neutral() {
		var allowed []any
		for _, text := range values {
			var value any
			_ = json.Unmarshal([]byte(text), &value) // values are constants
			allowed = append(allowed, value)
		}
		properties[field] = nullable(Schema{"description": "Only values without effect are supported.", "enum": allowed})
	}
	for _, f := range list {
		s := b.value(reflect.TypeOf(f.Dst).Elem())
		for _, key := range []string{f.Name, name + "." + f.Name} {
			maps.Copy(s, limits()[key])
		}
		if !slices.Contains(required, f.Name) {
			s = nullable(s)
		}
		properties[f.Name] = s
	}
	s := object(properties, required)
	s["additionalProperties"] = Schema{"type": "null"}
	b.components[name] = s
}

// value returns the schema of a field's value other than null.
func (b *builder) value(t reflect.Type) Schema {
	switch {
	case t == reflect.TypeFor[fields.Stops]():
		text := Schema{"type": "string", "minLength": 1}
		return Schema{"anyOf": []any{text, Schema{"type": "array", "items": text, "maxItems": job.MaxStops}}}
	case t == reflect.TypeFor[fields.Object](), t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[fields.Seed]():
		return b.of(t)
	case t.Kind() == reflect.Pointer:
		return b.value(t.Elem())
	case t.Kind() == reflect.Slice:
		return arrayOf(b.value(t.Elem()))
	case t.Kind() == reflect.Struct: // encoding/json decodes it: unknown fields have no effect
		s := b.fieldsOf(t)
		delete(s, "required")
		delete(s, "additionalProperties")
		properties, _ := s["properties"].(Schema)
		for name, property := range properties {
			if property, ok := property.(Schema); ok {
				properties[name] = nullable(property)
			}
		}
		return s
	}
	return b.of(t)
}

// limits returns what the type of a field does not say, by field or by schema and field.
func limits() map[string]Schema {
	tokens := Schema{"type": "integer", "minimum": 1, "maximum": math.MaxInt32}
	top := Schema{"minimum": 0, "maximum": job.MaxTop}
	text := Schema{"type": "string", "maxLength": lease.MaxName}
	id := Schema{"type": "integer", "minimum": 0, "maximum": math.MaxInt32}
	ids := Schema{"type": "array", "items": id, "minItems": 1}
	return map[string]Schema{
		"model":                  {"description": "The model's name, or empty."},
		"n":                      {"minimum": 1, "maximum": job.MaxResponses, "default": 1},
		"best_of":                {"minimum": 1, "maximum": job.MaxResponses, "description": "Must equal n."},
		"sample_index":           {"minimum": 0, "maximum": math.MaxInt32 - 1, "default": 0, "description": "Index of the first response: others may ask for the earlier ones."},
		"max_tokens":             maps.Clone(tokens),
		"max_completion_tokens":  maps.Clone(tokens),
		"truncate_prompt_tokens": {"minimum": -1, "maximum": math.MaxInt32, "not": Schema{"const": 0}, "description": "Keeps that many of the prompt's last tokens, or with -1 as many as fit."},
		"temperature": {"default": 1, "anyOf": []any{Schema{"const": 0},
			Schema{"minimum": inference.LeastTemperature, "maximum": inference.MostTemperature}}},
		"top_p":                      {"exclusiveMinimum": 0, "maximum": 1, "default": 1},
		"min_p":                      {"minimum": 0, "maximum": 1, "default": 0},
		"top_k":                      {"minimum": -1, "maximum": math.MaxInt32, "default": 0, "description": "0 and -1 keep all."},
		"seed":                       {"description": "Random if absent."},
		"stop_token_ids":             {"maxItems": job.MaxStops},
		"prompt_logprobs":            top,
		"top_logprobs":               top,
		"CompletionRequest.logprobs": top,
		"SamplingParams.logprobs":    top,
		"weight_version":             {"minimum": 0, "maximum": math.MaxInt64, "description": "The version that must answer."},
		"stream_choices":             {"description": "Sends each choice as a line of JSON when it has ended."},
		"messages":                   {"type": "array", "minItems": 1, "items": messages()},
		"tools":                      {"type": "array", "items": tools()},
		"tool_choice":                {"type": "string", "enum": []any{"auto", "none"}},
		"parallel_tool_calls":        {"default": true},
		"chat_template_kwargs":       {"type": "object", "properties": Schema{"messages": false, "tools": false, "add_generation_prompt": false}},
		"tokens":                     {"items": id},
		"token_ids":                  {"items": id, "minItems": 1},
		"sampling_params":            {"$ref": "#/components/schemas/SamplingParams"},
		"output_mode":                {"enum": []any{"tokens"}},
		"request_id":                 {"maxLength": job.MaxRequestID},
		"id":                         {"minLength": 1, "maxLength": lease.MaxName},
		"name":                       text,

		"CompletionRequest.prompt": {"anyOf": []any{Schema{"type": "string"}, ids,
			Schema{"type": "array", "items": Schema{"type": "string"}, "minItems": 1, "maxItems": job.MaxPrompts},
			Schema{"type": "array", "items": ids, "minItems": 1, "maxItems": job.MaxPrompts}}},
		"CompletionRequest.max_tokens":         {"minimum": 0, "default": 16, "description": "0 requires echo."},
		"CompletionRequest.add_special_tokens": {"enum": []any{true}},
		"ChatRequest.add_special_tokens":       {"enum": []any{false}},
		"ChatRequest.echo":                     {"enum": []any{false}},

		"GenerateRequest.stream": {"enum": []any{false}},
	}
}

// messages returns the schema of a message. The chat template may read other fields.
func messages() Schema {
	part := Schema{"type": "object", "properties": Schema{"type": Schema{"const": "text"}, "text": Schema{"type": "string"}}, "required": []string{"type", "text"}}
	function := Schema{"type": "object", "properties": Schema{"name": Schema{"type": "string", "minLength": 1},
		"arguments": Schema{"type": []any{"string", "object"}, "description": "A JSON object, as a string."}}, "required": []string{"name"}}
	call := Schema{"type": "object", "properties": Schema{"type": Schema{"enum": []any{"function", nil}}, "function": function}, "required": []string{"function"}}
	return Schema{"type": "object", "required": []string{"role"}, "properties": Schema{
		"role":       Schema{"type": "string", "minLength": 1},
		"content":    Schema{"anyOf": []any{Schema{"type": []any{"string", "null"}}, arrayOf(part)}},
		"tool_calls": nullable(arrayOf(call))}}
}

// tools returns the schema of a tool.
func tools() Schema {
	return Schema{"type": "object", "required": []string{"type", "function"}, "properties": Schema{"type": Schema{"const": "function"},
		"function": Schema{"type": "object", "properties": Schema{"name": Schema{"type": "string", "minLength": 1}}, "required": []string{"name"}}}}
}

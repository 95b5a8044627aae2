package openapi

import (
	"reflect"
	"strings"

	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
)

// Requests holds the fields of the requests that the server root decodes.
type Requests struct {
	Completion, Chat, Generate, Sampling, Tokenize, Detokenize, Trainer []fields.Field
}

// operation is a method of a path.
type operation struct {
	path, method, summary string
	request               string // name of its schema; may be empty
	answer                Schema // of 200; nil for text
	streams               bool
	parameters            []any
}

// Document returns the description of a server of that version.
func Document(version string, r Requests) Schema {
	b := &builder{components: Schema{}}
	b.answers()
	failure := b.of(reflect.TypeFor[openai.ErrorAnswer]())
	b.request("CompletionRequest", r.Completion, "prompt")
	b.request("ChatRequest", r.Chat, "messages")
	b.request("GenerateRequest", r.Generate, "token_ids", "sampling_params")
	b.request("SamplingParams", r.Sampling)
	b.request("TokenizeRequest", r.Tokenize)
	b.request("DetokenizeRequest", r.Detokenize, "tokens")
	b.request("TrainerRequest", r.Trainer, "id")
	paths := Schema{}
	for _, op := range b.operations() {
		path, ok := paths[op.path].(Schema)
		if !ok {
			path = Schema{}
			paths[op.path] = path
		}
		path[strings.ToLower(op.method)] = op.describe(failure)
	}
	return Schema{
		"openapi": "3.1.0", "info": Schema{"title": "easyrl serve", "version": version}, "paths": paths,
		"components": Schema{"schemas": b.components, "securitySchemes": Schema{"token": Schema{"type": "http", "scheme": "bearer"}}},
		"security":   []any{Schema{}, Schema{"token": []any{}}},
	}
}

// operations returns what the server does.
func (b *builder) operations() []operation {
	query := func(name string, required bool, s Schema) any {
		return Schema{"name": name, "in": "query", "required": required, "schema": s}
	}
	text := Schema{"type": "string"}
	held := b.of(reflect.TypeFor[openai.WeightsHeld]())
	card := b.of(reflect.TypeFor[openai.ModelCard]())
	empty := b.of(reflect.TypeFor[openai.Empty]())
	get := func(path, summary string, t reflect.Type) operation {
		return operation{path: path, method: "GET", summary: summary, answer: b.of(t)}
	}
	post := func(path, summary, request string, answer Schema) operation {
		return operation{path: path, method: "POST", summary: summary, request: request, answer: answer}
	}
	list := []operation{
		get("/health", "Reports whether the server accepts requests.", reflect.TypeFor[openai.HealthStatus]()),
		get("/version", "Returns the version of the server.", reflect.TypeFor[openai.EngineVersion]()),
		get("/load", "Counts running and waiting requests.", reflect.TypeFor[openai.ServerLoad]()),
		get("/server_info", "Describes the model, the weights and the limits.", reflect.TypeFor[openai.ServerInfo]()),
		get("/get_world_size", "Counts the processes that share the model.", reflect.TypeFor[openai.WorldSize]()),
		get("/v1/models", "Lists the model.", reflect.TypeFor[openai.ModelList]()),
		{path: "/v1/models/{model}", method: "GET", summary: "Describes the model.", answer: card,
			parameters: []any{Schema{"name": "model", "in": "path", "required": true, "schema": text}}},
		{path: "/metrics", method: "GET", summary: "Returns metrics in Prometheus's format."},
		{path: "/openapi.json", method: "GET", summary: "Returns this document.", answer: Schema{"type": "object"}},
		{path: "/v1/completions", method: "POST", summary: "Completes prompts.", request: "CompletionRequest", answer: reference("CompletionAnswer"), streams: true},
		{path: "/v1/chat/completions", method: "POST", summary: "Answers a conversation.", request: "ChatRequest", answer: reference("ChatAnswer"), streams: true},
		post("/inference/v1/generate", "Completes token IDs.", "GenerateRequest", reference("GenerateAnswer")),
		post("/tokenize", "Returns the tokens of a text or a conversation.", "TokenizeRequest", b.of(reflect.TypeFor[openai.TokenizeAnswer]())),
		post("/detokenize", "Returns the text of tokens.", "DetokenizeRequest", b.of(reflect.TypeFor[openai.DetokenizeAnswer]())),
		post("/v1/trainer", "Reserves the server for a trainer.", "TrainerRequest", empty),
		{path: "/v1/trainer", method: "DELETE", summary: "Releases the server.", answer: empty, parameters: []any{query("id", false, text)}},
		post("/v1/drain", "Ends the acceptance of requests.", "", b.of(reflect.TypeFor[openai.Draining]())),
		{path: "/v1/weights", method: "GET", summary: "Describes the current weights.", answer: held},
		{path: "/v1/weights", method: "PUT", summary: "Replaces the weights by a safetensors file.", request: "file", answer: held,
			parameters: []any{query("version", true, Schema{"type": "integer", "minimum": 1}), query("trainer", false, text), query("path", false, text)}},
	}
	return list
}

// describe returns the operation in the document.
func (op *operation) describe(failure Schema) Schema {
	content := func(kind string, s Schema) Schema { return Schema{kind: Schema{"schema": s}} }
	answers := content("text/plain", Schema{"type": "string"})
	if op.answer != nil {
		answers = content("application/json", op.answer)
	}
	if op.streams {
		answers["text/event-stream"] = Schema{"schema": Schema{"type": "string"}}
		answers["application/x-ndjson"] = Schema{"schema": Schema{"type": "string"}}
	}
	refused := Schema{"description": "The request is refused.", "content": content("application/json", failure)}
	out := Schema{"summary": op.summary, "operationId": strings.ToLower(op.method) + strings.NewReplacer("/", "_", ".", "_", "{", "", "}", "").Replace(op.path),
		"responses": Schema{"200": Schema{"description": "The answer.", "content": answers}, "4XX": refused,
			"5XX": Schema{"description": "The server failed or is not ready.", "content": content("application/json", failure)}}}
	if op.parameters != nil {
		out["parameters"] = op.parameters
	}
	switch op.request {
	case "":
	case "file":
		out["requestBody"] = Schema{"content": Schema{"application/octet-stream": Schema{}}, "description": "Not with path."}
	default:
		out["requestBody"] = Schema{"required": true, "content": content("application/json", reference(op.request))}
	}
	return out
}

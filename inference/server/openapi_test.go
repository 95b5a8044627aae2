package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// interfaceOf returns the server's description of itself and its schemas.
func interfaceOf(t *testing.T, s *Server) (document map[string]any, all schemas) {
	t.Helper()
	status, header, data := call(t, s, http.MethodGet, "/openapi.json", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "application/json", header.Get("Content-Type"))
	require.NoError(t, json.Unmarshal(data, &document))
	all = schemas{}
	for name, schema := range document["components"].(map[string]any)["schemas"].(map[string]any) {
		all[name] = schema.(map[string]any)
	}
	return document, all
}

// in returns a value inside nested objects.
func in(v any, keys ...string) any {
	for _, key := range keys {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[key]
	}
	return v
}

// The document has the paths and methods of the server, and every reference in it leads to
// a schema.
func TestDocumentPaths(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	document, all := interfaceOf(t, s)
	want := map[string][]string{}
	for path, m := range s.paths {
		if path == modelPath {
			path += "{model}"
		}
		for name := range m {
			want[path] = append(want[path], strings.ToLower(name))
		}
		slices.Sort(want[path])
	}
	got := map[string][]string{}
	for path, methods := range document["paths"].(map[string]any) {
		got[path] = slices.Sorted(maps.Keys(methods.(map[string]any)))
	}
	require.Equal(t, want, got)
	data, err := json.Marshal(document)
	require.NoError(t, err)
	for _, part := range strings.Split(string(data), `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		require.Contains(t, all, name)
		require.NotEmpty(t, all[name], name)
	}
}

// valid returns a request of each schema that the server accepts.
func valid() map[string][2]string {
	return map[string][2]string{
		"CompletionRequest": {"/v1/completions", `{"prompt":"a"`},
		"ChatRequest":       {"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]`},
		"GenerateRequest":   {"/inference/v1/generate", `{"token_ids":[1],"sampling_params":{}`},
		"SamplingParams":    {"/inference/v1/generate", `{"token_ids":[1],"sampling_params":{`},
		"TokenizeRequest":   {"/tokenize", `{"messages":[{"role":"user","content":"a"}]`},
		"DetokenizeRequest": {"/detokenize", `{"tokens":[1]`},
		"TrainerRequest":    {"/v1/trainer", `{"id":"a"`},
	}
}

// send adds a field to the valid request of a schema and returns the status and the faulty
// field.
func send(t *testing.T, s *Server, schema, field string, value any) (status int, param any) {
	t.Helper()
	request := valid()[schema]
	text, err := json.Marshal(value)
	require.NoError(t, err)
	added := fmt.Sprintf("%q:%s}", field, text)
	if strings.HasSuffix(request[1], "{") {
		added += "}"
	} else {
		added = "," + added
	}
	status, _, data := call(t, s, http.MethodPost, request[0], request[1]+added)
	if status != http.StatusOK {
		_, _, param = errorOf(t, data)
	}
	return status, param
}

// Each field of the document's requests is decoded, no other is, and the limits are those
// of the server.
func TestDocumentRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	_, all := interfaceOf(t, s)
	limits := 0
	for name := range valid() {
		status, param := send(t, s, name, "colour", "red")
		require.Equal(t, http.StatusBadRequest, status, name)
		require.Equal(t, "colour", param, name)
		for field, schema := range all[name]["properties"].(map[string]any) {
			schema := schema.(map[string]any)
			status, param := send(t, s, name, field, []any{map[string]any{}})
			if schema["description"] != "Has no effect." {
				require.Equal(t, http.StatusBadRequest, status, "%s.%s", name, field)
				require.Equal(t, field, param, "%s.%s", name, field)
			}
			for limit, beyond := range map[string]float64{"minimum": -1, "maximum": 1} {
				value, ok := schema[limit].(float64)
				if !ok || value > 1<<40 || value < -1<<40 {
					continue
				}
				limits++
				status, param = send(t, s, name, field, value+beyond)
				require.Equal(t, http.StatusBadRequest, status, "%s.%s", name, field)
				require.Equal(t, strings.Replace(field, "max_completion_tokens", "max_tokens", 1), param,
					"%s.%s", name, field)
				if slices.Contains([]string{"best_of", "weight_version", "max_tokens", "max_completion_tokens",
					"top_logprobs"}, field) {
					continue // other fields limit them further
				}
				status, param = send(t, s, name, field, value)
				require.True(t, status == http.StatusOK || param != field, "%s.%s %v: %v", name, field, value, param)
			}
		}
	}
	require.Greater(t, limits, 30)
}

// Answers are as the document says.
func TestDocumentAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, saying("a <tool_call>{\"name\":\"f\"}</tool_call>"), fakeText{}, nil)
	document, all := interfaceOf(t, s)
	const message = `{"messages":[{"role":"user","content":"a"}]`
	for _, test := range []struct{ method, path, body string }{
		{"GET", "/health", ""}, {"GET", "/version", ""}, {"GET", "/load", ""}, {"GET", "/server_info", ""},
		{"GET", "/get_world_size", ""},
		{"GET", "/v1/models", ""}, {"GET", "/v1/models/tiny", ""}, {"GET", "/v1/models/none", ""},
		{"GET", "/v1/weights", ""},
		{"GET", "/openapi.json", ""}, {"POST", "/tokenize", `{"prompt":"a","return_token_strs":true}`},
		{"POST", "/tokenize", `{"prompt":""}`},
		{"POST", "/tokenize", message + `}`}, {"POST", "/tokenize", `{}`},
		{"POST", "/tokenize", message + `,"prompt":"a"}`}, {"POST", "/detokenize", `{"tokens":[]}`},
		{"POST", "/v1/trainer", `{"id":"a"}`}, {"DELETE", "/v1/trainer", ""}, {"PUT", "/v1/weights", ""},
		{"PUT", "/v1/weights?version=4", "weights"},
		{"POST", "/v1/completions",
			`{"prompt":["a","b"],"n":2,"logprobs":3,"echo":true,"prompt_logprobs":2,"return_token_ids":true}`},
		{"POST", "/v1/completions", `{"prompt":"a","max_tokens":0,"echo":true,"logprobs":0}`},
		{"POST", "/v1/completions", `{"prompt":"a","max_tokens":1}`},
		{"POST", "/v1/completions", `{}`}, {"POST", "/v1/chat/completions", message + `}`},
		{"POST", "/v1/chat/completions", message + `,` + oneTool + `}`},
		{"POST", "/v1/chat/completions", message +
			`,"logprobs":true,"top_logprobs":2,"prompt_logprobs":1,"return_token_ids":true}`},
		{"POST", "/inference/v1/generate", `{"token_ids":[1],"sampling_params":{}}`},
		{"POST", "/inference/v1/generate", `{"token_ids":[],"sampling_params":{}}`},
		{"POST", "/inference/v1/generate",
			`{"token_ids":[1,2],"sampling_params":{"logprobs":2,"prompt_logprobs":1,"n":2},"return_token_ids":true}`},
		{"POST", "/v1/drain", ""}, {"GET", "/health", ""},
	} {
		status, _, data := call(t, s, test.method, test.path, test.body)
		path, _, _ := strings.Cut(test.path, "?")
		if strings.HasPrefix(path, modelPath) {
			path = modelPath + "{model}"
		}
		code := "200"
		if status != http.StatusOK {
			code = fmt.Sprintf("%dXX", status/100)
		}
		schema, ok := in(document, "paths", path, strings.ToLower(test.method), "responses", code, "content",
			"application/json", "schema").(map[string]any)
		require.True(t, ok, "%v %d", test, status)
		var v any
		require.NoError(t, json.Unmarshal(data, &v))
		require.NoError(t, all.check(schema, v, test.path+" "+test.body), "%s", data)
		if object := v.(map[string]any); test.path != "/openapi.json" {
			object["colour"] = "red"
			require.Error(t, all.check(schema, v, test.path)) // the check can fail
		}
	}
}

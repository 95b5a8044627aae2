package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// schemas holds schemas by name.
type schemas map[string]map[string]any

// check reports whether v violates schema. It supports the keywords of JSON Schema that
// OpenAI's schemas and the server's own answers use.
func (s schemas) check(schema map[string]any, v any, at string) error {
	if ref, ok := schema["$ref"].(string); ok {
		target := s[ref[strings.LastIndexByte(ref, '/')+1:]]
		if target == nil {
			return fmt.Errorf("%s: no schema %s", at, ref)
		}
		return s.check(target, v, at)
	}
	if v == nil && schema["nullable"] == true {
		return nil
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		branches, ok := schema[word].([]any)
		if !ok {
			continue
		}
		var fault error
		fits := 0
		for _, b := range branches {
			if err := s.check(b.(map[string]any), v, at); err != nil {
				fault = err
			} else {
				fits++
			}
		}
		if fits == 0 || (word == "allOf" && fits < len(branches)) {
			return fmt.Errorf("%s of %w", word, fault)
		}
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Errorf("%s: %v, expected one of %v", at, v, enum)
	}
	kinds, _ := schema["type"].([]any)
	if kind, ok := schema["type"].(string); ok {
		kinds = []any{kind}
	}
	if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(kind any) bool { return isKind(kind.(string), v) }) {
		return fmt.Errorf("%s: %v, expected %v", at, v, kinds)
	}
	if n, ok := v.(float64); ok {
		low, hasLow := schema["minimum"].(float64)
		high, hasHigh := schema["maximum"].(float64)
		if (hasLow && n < low) || (hasHigh && n > high) {
			return fmt.Errorf("%s: %v, expected %v to %v", at, n, schema["minimum"], schema["maximum"])
		}
	}
	return s.checkInside(schema, v, at)
}

// checkInside checks the parts of v.
func (s schemas) checkInside(schema map[string]any, v any, at string) error {
	switch v := v.(type) {
	case map[string]any:
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				return fmt.Errorf("%s has no %s", at, name)
			}
		}
		properties, _ := schema["properties"].(map[string]any)
		more, _ := schema["additionalProperties"].(map[string]any)
		for name, value := range v {
			inner, ok := properties[name].(map[string]any)
			if !ok && schema["additionalProperties"] == false {
				return fmt.Errorf("%s: unknown field %s", at, name)
			}
			if !ok {
				inner = more
			}
			if err := s.check(inner, value, at+"."+name); err != nil {
				return err
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		if low, ok := schema["minItems"].(float64); ok && len(v) < int(low) {
			return fmt.Errorf("%s has %d items, expected at least %v", at, len(v), low)
		}
		for i, value := range v {
			if err := s.check(items, value, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func isKind(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || (kind == "integer" && v == math.Trunc(v))
	case []any:
		return kind == "array"
	}
	return kind == "object"
}

type example struct {
	Method, Path, Title string
	Request             map[string]any   `json:"request_body"`
	Response            any              `json:"response"`
	Chunks              []map[string]any `json:"stream_chunks"`
}

func conformance(t *testing.T) (schemas, []example) {
	t.Helper()
	dir := os.Getenv("EASYRL_TESTDATA")
	if dir == "" {
		t.Skip("EASYRL_TESTDATA is not set: no examples of OpenAI's interface")
	}
	data, err := os.ReadFile(filepath.Join(dir, "conformance", "openai_chat_schemas.json"))
	require.NoError(t, err)
	var all schemas
	require.NoError(t, json.Unmarshal(data, &all))
	data, err = os.ReadFile(filepath.Join(dir, "conformance", "openai_api_examples.jsonl"))
	require.NoError(t, err)
	var examples []example
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e example
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		examples = append(examples, e)
	}
	return all, examples
}

// Answers to the documentation's requests match OpenAI's schemas, like the
// documentation's own answers. Unsupported requests are refused in the schema of errors.
func TestOpenAIExamples(t *testing.T) {
	t.Parallel()
	all, examples := conformance(t)
	s := serve(t, newFake(), fakeText{}, nil)
	names := map[string][2]string{"/chat/completions": {"CreateChatCompletionResponse",
		"CreateChatCompletionStreamResponse"},
		"/completions": {"CreateCompletionResponse", "CreateCompletionResponse"}}
	answered, refused := 0, 0
	for _, e := range examples {
		name, ok := names[e.Path]
		if !ok || e.Method != http.MethodPost {
			continue
		}
		what := e.Path + " " + e.Title
		e.Request["model"] = "tiny"
		body, err := json.Marshal(e.Request)
		require.NoError(t, err)
		status, _, data := call(t, s, e.Method, "/v1"+e.Path, string(body))
		if status != http.StatusOK {
			require.Contains(t, []string{"Image input"}, e.Title, "%s", data)
			var v any
			require.NoError(t, json.Unmarshal(data, &v))
			require.NoError(t, all.check(all["ErrorResponse"], v, what))
			refused++
			continue
		}
		answered++
		if e.Request["stream"] == true {
			for _, event := range events(t, data) {
				// The schema of completions forbids null here, but the documentation's stream has it.
				if c := event["choices"].([]any)[0].(map[string]any); !strings.HasPrefix(e.Path, "/chat") &&
					c["finish_reason"] == nil {
					c["finish_reason"] = "stop"
				}
				require.NoError(t, all.check(all[name[1]], event, what))
			}
			for _, chunk := range e.Chunks {
				require.NotNil(t, chunk["choices"])
			}
			continue
		}
		var v any
		require.NoError(t, json.Unmarshal(data, &v))
		require.NoError(t, all.check(all[name[0]], v, what))
		require.Error(t, all.check(all[name[0]], map[string]any{"id": "x"}, what)) // the check can fail
	}
	require.Equal(t, 6, answered)
	require.Equal(t, 1, refused)
	for path, name := range map[string]string{"/v1/models": "ListModelsResponse", "/v1/models/tiny": "Model"} {
		_, _, data := call(t, s, http.MethodGet, path, "")
		var v any
		require.NoError(t, json.Unmarshal(data, &v))
		require.NoError(t, all.check(all[name], v, path))
	}
	_, got := post(t, s, "/v1/completions", `{"prompt":"a","logprobs":3}`)
	require.NoError(t, all.check(all["CreateCompletionResponse"], any(got), "logprobs"))
}

package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// The server returns what the backend samples bit for bit: IDs, and log-probabilities
// after their way through JSON.
func TestCompletionEqualsBackend(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	const seed = uint64(1)<<63 + 12345
	want, err := backend.Generate(t.Context(), inference.Request{PromptIDs: []int32{104, 105}, N: 5, Seed: seed,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 40, StopIDs: []int32{fakeEOS}}})
	require.NoError(t, err)
	for _, first := range []int{0, 2} {
		body := fmt.Sprintf(
			`{"prompt":[104,105],"n":%d,"sample_index":%d,"seed":%d,"max_tokens":40,"logprobs":0,`+
				`"return_token_ids":true}`, 5-first, first, seed)
		status, _, data := call(t, s, http.MethodPost, "/v1/completions", body)
		require.Equal(t, http.StatusOK, status, "%s", data)
		var got struct {
			Version int64  `json:"weight_version"`
			Sum     string `json:"weight_checksum"`
			Choices []struct {
				Index     int
				Text      string
				IDs       []int32 `json:"token_ids"`
				PromptIDs []int32 `json:"prompt_token_ids"`
				Finish    string  `json:"finish_reason"`
				Logprobs  struct {
					Logprobs []float32 `json:"token_logprobs"`
					Tokens   []string
					Offsets  []int `json:"text_offset"`
				}
			}
			Usage map[string]int
		}
		require.NoError(t, json.Unmarshal(data, &got))
		require.EqualValues(t, 3, got.Version)
		require.Equal(t, backend.checksum, got.Sum)
		require.Len(t, got.Choices, 5-first)
		tokens := 0
		for i, c := range got.Choices {
			w := want[first+i]
			require.Equal(t, i, c.Index)
			require.Equal(t, w.IDs, c.IDs)
			require.Equal(t, w.Logprobs, c.Logprobs.Logprobs)
			require.Equal(t, w.Text, c.Text)
			require.Equal(t, string(w.Finish), c.Finish)
			require.Equal(t, []int32{104, 105}, c.PromptIDs)
			require.Equal(t, w.Text, strings.TrimSuffix(strings.Join(c.Logprobs.Tokens, ""), "<eos>"))
			require.Equal(t, len(w.IDs)-1, c.Logprobs.Offsets[len(w.IDs)-1])
			tokens += len(w.IDs)
		}
		require.Equal(t, map[string]int{"prompt_tokens": 2, "completion_tokens": tokens, "total_tokens": tokens + 2},
			got.Usage)
	}
}

// Several prompts in each of the four forms. Choice i belongs to prompt i / n.
func TestPrompts(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	texts := func(prompt string) (out []string) {
		status, got := post(t, s, "/v1/completions", `{"prompt":`+prompt+`,"n":2,"seed":-9,"model":"tiny"}`)
		require.Equal(t, http.StatusOK, status, "%v", got)
		for _, c := range got["choices"].([]any) {
			out = append(out, c.(map[string]any)["text"].(string))
		}
		return out
	}
	ab, cd := texts(`"ab"`), texts(`"cd"`)
	require.Len(t, ab, 2)
	require.NotEqual(t, ab, cd)
	require.Equal(t, ab, texts(`[97,98]`))
	require.Equal(t, append(ab[:2:2], cd...), texts(`["ab","cd"]`))
	require.Equal(t, append(ab[:2:2], cd...), texts(`[[97,98],[99,100]]`))
}

func TestStops(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	get := func(more string) (string, map[string]any) {
		status, got := post(t, s, "/v1/completions",
			`{"prompt":"stop me","seed":5,"max_tokens":60,"ignore_eos":true,"return_token_ids":true`+more+`}`)
		require.Equal(t, http.StatusOK, status, "%v", got)
		c := got["choices"].([]any)[0].(map[string]any)
		return c["text"].(string), c
	}
	whole, c := get("")
	require.Equal(t, "length", c["finish_reason"])
	require.Len(t, c["token_ids"], 60)
	stop := whole[20:23]
	at := strings.Index(whole, stop)
	text, c := get(`,"stop":["never!",` + fmt.Sprintf("%q", stop) + `]`)
	require.Equal(t, whole[:at], text)
	require.Equal(t, "stop", c["finish_reason"])
	require.Equal(t, stop, c["stop_reason"])
	text, _ = get(`,"stop":` + fmt.Sprintf("%q", stop) + `,"include_stop_str_in_output":true`)
	require.Equal(t, whole[:at+3], text)
	id := whole[30]
	text, c = get(fmt.Sprintf(`,"stop_token_ids":[%d]`, id))
	require.Equal(t, whole[:strings.IndexByte(whole, id)], text)
	require.EqualValues(t, id, c["stop_reason"])
}

// Special tokens have a name and no place in the text.
func TestOffsets(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	_, got := post(t, s, "/v1/completions", `{"prompt":"a","seed":5,"max_tokens":100,"ignore_eos":true,"logprobs":0}`)
	c := got["choices"].([]any)[0].(map[string]any)
	logprobs := c["logprobs"].(map[string]any)
	specials := 0
	for i, token := range logprobs["tokens"].([]any) {
		at := int(logprobs["text_offset"].([]any)[i].(float64))
		if token == "<eos>" {
			specials++
			continue
		}
		require.Equal(t, token, c["text"].(string)[at:at+1])
	}
	require.Positive(t, specials)
}

// echo and prompt_logprobs return the prompt's log-probabilities. With max_tokens 0 they
// return nothing else.
func TestEcho(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	status, got := post(t, s, "/v1/completions",
		`{"prompt":[[97,98,99]],"echo":true,"max_tokens":0,"logprobs":0,"prompt_logprobs":0}`)
	require.Equal(t, http.StatusOK, status, "%v", got)
	c := got["choices"].([]any)[0].(map[string]any)
	require.Equal(t, "abc", c["text"])
	logprobs := c["logprobs"].(map[string]any)
	require.Equal(t, []any{"a", "b", "c"}, logprobs["tokens"])
	require.Equal(t, []any{0.0, 1.0, 2.0}, logprobs["text_offset"])
	values := logprobs["token_logprobs"].([]any)
	require.Nil(t, values[0])
	require.InDelta(t, -1./3, values[1], 1e-6)
	require.Len(t, values, 3)
	prompt := c["prompt_logprobs"].([]any)
	require.Nil(t, prompt[0])
	require.InDelta(t, -2./3, prompt[2].(map[string]any)["99"].(map[string]any)["logprob"], 1e-6)
	require.EqualValues(t, 0, got["usage"].(map[string]any)["completion_tokens"])
}

// Unsupported fields that would change the result are refused by name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	text := func(more string) string { return `{"prompt":"a",` + more + `}` }
	chat := func(more string) string { return `{"messages":[{"role":"user","content":"a"}],` + more + `}` }
	for _, test := range []struct {
		path, body string
		status     int
		param      any
	}{
		{"completions", text(`"presence_penalty":0.5`), 400, "presence_penalty"},
		{"completions", text(`"logit_bias":{"5":1}`), 400, "logit_bias"},
		{"completions", text(`"best_of":2`), 400, "best_of"},
		{"completions", text(`"best_of":1,"n":2`), 400, "best_of"},
		{"completions", text(`"add_special_tokens":false`), 400, "add_special_tokens"},
		{"completions", text(`"suffix":"x"`), 400, "suffix"},
		{"completions", text(`"colour":"red"`), 400, "colour"},
		{"completions", text(`"n":0`), 400, "n"},
		{"completions", text(`"n":1.5`), 400, "n"},
		{"completions", text("\"n\":[\n1\n]"), 400, "n"},
		{"completions", text(`"` + strings.Repeat("x", 1000) + `":1`), 400, strings.Repeat("x", 100)},
		{"completions", text(`"n":99999999999999999999`), 400, "n"},
		{"completions", text(`"seed":18446744073709551616`), 400, "seed"},
		{"completions", text(`"logprobs":21`), 400, "logprobs"},
		{"completions", text(`"logprobs":20,"n":4096,"max_tokens":205`), 400, "logprobs"},
		{"chat/completions", chat(`"logprobs":true,"top_logprobs":20,"n":4096`), 400, "logprobs"},
		{"completions", text(`"max_tokens":0`), 400, "max_tokens"},
		{"completions", text(`"max_tokens":4096`), 400, "max_tokens"},
		{"completions", text(`"temperature":-1`), 400, "temperature"},
		// its logits would fail all requests of the batch
		{"completions", text(`"temperature":5e-39`), 400, "temperature"},
		{"completions", text(`"top_p":0`), 400, "top_p"},
		{"completions", text(`"min_p":1.5`), 400, "min_p"},
		{"completions", text(`"top_k":2147483648`), 400, "top_k"},
		{"completions", text(`"stop":[""]`), 400, "stop"},
		{"completions", text(`"stop":5`), 400, "stop"},
		{"completions", text(`"prompt_logprobs":21`), 400, "prompt_logprobs"},
		{"completions", text(`"stream":true,"logprobs":0,"echo":true`), 400, "echo"},
		{"completions", text(`"stream":true,"prompt_logprobs":1`), 400, "prompt_logprobs"},
		{"completions", text(`"prompt_logprobs":20,"n":4096,"echo":true,"prompt":"` + strings.Repeat("a", 300) + `"`),
			400, "logprobs"},
		{"completions", text(`"truncate_prompt_tokens":0`), 400, "truncate_prompt_tokens"},
		{"completions", text(`"truncate_prompt_tokens":-2`), 400, "truncate_prompt_tokens"},
		{"completions", text(`"truncate_prompt_tokens":5,"truncation_side":"right"`), 400, "truncation_side"},
		{"completions", text(`"model":"gpt-9"`), 404, "model"},
		{"completions", text(`"weight_version":2`), 409, nil},
		{"completions", `{"prompt":[]}`, 400, "prompt"},
		{"completions", `{"prompt":[257]}`, 400, "prompt"},
		{"completions", `{"prompt":[-1]}`, 400, "prompt"},
		{"completions", `{"prompt":[1,null]}`, 400, "prompt"},
		{"completions", `{"prompt":[1,"a"]}`, 400, "prompt"},
		{"completions", `{"prompt":["a",1]}`, 400, "prompt"},
		{"completions", `{"prompt":{}}`, 400, "prompt"},
		{"completions", `{}`, 400, "prompt"},
		{"chat/completions", chat(`"response_format":{"type":"json_object"}`), 400, "response_format"},
		{"chat/completions", chat(`"tools":[{"type":"function"}]`), 400, "tools"},
		{"chat/completions", chat(`"tools":[{"type":"custom","function":{"name":"f"}}]`), 400, "tools"},
		{"chat/completions", chat(`"tools":{}`), 400, "tools"},
		{"chat/completions", chat(`"tool_choice":"required"`), 400, "tool_choice"},
		{"chat/completions", chat(`"tool_choice":{"type":"function","function":{"name":"f"}}`), 400, "tool_choice"},
		{"chat/completions", chat(`"parallel_tool_calls":1`), 400, "parallel_tool_calls"},
		{"chat/completions", chat(`"chat_template_kwargs":[]`), 400, "chat_template_kwargs"},
		{"chat/completions", chat(`"chat_template_kwargs":{"messages":[]}`), 400, "chat_template_kwargs"},
		{"chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]}`,
			400, "messages"},
		{"chat/completions",
			`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":1}}]}]}`,
			400, "messages"},
		{"chat/completions",
			`{"messages":[{"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]}]}`,
			400, "messages"},
		{"chat/completions", chat(`"top_logprobs":3`), 400, "top_logprobs"},
		{"chat/completions", chat(`"logprobs":true,"top_logprobs":21`), 400, "top_logprobs"},
		{"chat/completions", chat(`"prompt":"a"`), 400, "prompt"},
		{"chat/completions", `{"messages":[]}`, 400, "messages"},
		{"chat/completions", `{"messages":[{"content":"a"}]}`, 400, "messages"},
		{"chat/completions", `{"messages":[{"role":"","content":"a"}]}`, 400, "messages"},
		{"chat/completions", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 400, "messages"},
		{"chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages"},
	} {
		status, _, data := call(t, s, http.MethodPost, "/v1/"+test.path, test.body)
		require.Equal(t, test.status, status, "%s: %s", test.body, data)
		message, _, param := errorOf(t, data)
		require.Equal(t, test.param, param, "%s: %s", test.body, data)
		require.NotContains(t, message, "\n")
	}
	for _, body := range []string{
		text(`"presence_penalty":0.0,"frequency_penalty":0,"repetition_penalty":1,"logit_bias":{ ` +
			`},"best_of":1,"top_k":-1,"user":"u","seed":null`),
		text(`"max_tokens":4095,"stop":[]`),
		text(`"n":3,"best_of":3,"add_special_tokens":true,"colour":null,"guided_json":null,"include_reasoning":true`),
		text(`"logprobs":20,"n":256,"max_tokens":20`), // encoded one choice at a time
	} {
		status, got := post(t, s, "/v1/completions", body)
		require.Equal(t, http.StatusOK, status, "%v", got)
	}
	status, got := post(t, s, "/v1/completions", text(`"max_tokens":4096`))
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "context_length_exceeded", got["error"].(map[string]any)["code"])
	require.Equal(t, "This model's maximum context length is 4096 tokens. However, you requested 4097 tokens (1 in "+
		"the prompt, 4096 in the completion). Shorten the prompt or lower max_tokens",
		got["error"].(map[string]any)["message"])
	_, got = post(t, s, "/v1/completions", text(`"colour": {"red": 1}`))
	require.Equal(t, `colour {"red": 1} is not supported, expected no such field`,
		got["error"].(map[string]any)["message"])
	_, got = post(t, s, "/v1/completions", `{"prompt":"a","\u001b[31m":1}`)
	require.Equal(t, `\x1b[31m 1 is not supported, expected no such field`, got["error"].(map[string]any)["message"])
	status, got = post(t, s, "/v1/chat/completions",
		chat(
			`"response_format":{"type": "text"},"tools":[{"type":"function","function":{"name":"f"}}],`+
				`"tool_choice":"none"`))
	require.Equal(t, http.StatusOK, status, "%v", got)
}

// A model without a tokenizer is served by token IDs.
func TestNoText(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), nil, nil)
	status, got := post(t, s, "/v1/completions", `{"prompt":[1,2],"logprobs":0}`)
	require.Equal(t, http.StatusOK, status, "%v", got)
	tokens := got["choices"].([]any)[0].(map[string]any)["logprobs"].(map[string]any)["tokens"].([]any)
	require.Contains(t, tokens[0], "token_id:")
	for path, body := range map[string]string{"/v1/completions": `{"prompt":"a"}`, "/tokenize": `{"prompt":"a"}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"a"}]}`} {
		status, _ := post(t, s, path, body)
		require.Equal(t, http.StatusBadRequest, status, path)
	}
}

// Invalid output of the backend is not sent.
func TestBadBackend(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.nan = true
	s := serve(t, backend, fakeText{}, nil)
	status, got := post(t, s, "/v1/completions", `{"prompt":"a","logprobs":0}`)
	require.Equal(t, http.StatusInternalServerError, status, "%v", got)
}

func TestSmallEndpoints(t *testing.T) {
	t.Parallel()
	backend := newFake()
	backend.load = Load{Running: 2, Waiting: 3, FreePages: 25, CachePages: 100, Tokens: 77}
	s := serve(t, backend, fakeText{}, nil)
	status, got := post(t, s, "/tokenize", `{"prompt":"ab","return_token_strs":true}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []any{97.0, 98.0}, got["tokens"])
	require.Equal(t, []any{"a", "b"}, got["token_strs"])
	_, got = post(t, s, "/detokenize", `{"tokens":[97,98]}`)
	require.Equal(t, "ab", got["prompt"])
	status, _ = post(t, s, "/v1/completions", `{"prompt":"a"}`)
	require.Equal(t, http.StatusOK, status)
	for path, want := range map[string]string{
		"/health": `{"status":"ok"}`, "/load": `{"server_load":0}`, "/version": `"engine":"easyrl"`,
		"/get_world_size": `{"world_size":1}`, "/server_info": `"served_model_name":"tiny"`,
		"/v1/models": `"max_model_len":4096`, "/v1/models/tiny": `"id":"tiny"`,
	} {
		status, _, data := call(t, s, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(data), want)
	}
	_, _, data := call(t, s, http.MethodGet, "/metrics", "")
	for _, want := range []string{
		"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"tiny\",engine=\"0\"} 2\n",
		"vllm:num_requests_waiting{model_name=\"tiny\",engine=\"0\"} 3\n",
		"vllm:kv_cache_usage_perc{model_name=\"tiny\",engine=\"0\"} 0.75\n",
		"vllm:generation_tokens_total{model_name=\"tiny\",engine=\"0\"} 77\n",
		"vllm:e2e_request_latency_seconds_bucket{model_name=\"tiny\",engine=\"0\",le=\"+Inf\"} 1\n",
		"easyrl:weight_version{model_name=\"tiny\",engine=\"0\"} 3\n",
		"# TYPE go_goroutines gauge\ngo_goroutines ",
	} {
		require.Contains(t, string(data), want)
	}
	status, _, data = call(t, s, http.MethodGet, "/v1/models/other", "")
	require.Equal(t, http.StatusNotFound, status, "%s", data)
	status, _, _ = call(t, s, http.MethodGet, "/nowhere", "")
	require.Equal(t, http.StatusNotFound, status)
	for path, allow := range map[string]string{"/v1/models": "GET, HEAD", "/v1/completions": "POST",
		"/v1/weights": "GET, HEAD, PUT"} {
		status, header, _ := call(t, s, http.MethodDelete, path, "")
		require.Equal(t, http.StatusMethodNotAllowed, status)
		require.Equal(t, allow, header.Get("Allow"))
	}
	for _, id := range []string{"-1", "257"} {
		status, _, data = call(t, s, http.MethodPost, "/detokenize", `{"tokens":[97,`+id+`]}`)
		require.Equal(t, http.StatusBadRequest, status)
		message, _, param := errorOf(t, data)
		require.Equal(t, "tokens", param)
		require.Equal(t, "tokens[1] is "+id+", expected 0 to 256", message)
	}
	for path, method := range map[string]string{"/v1/completions": http.MethodPost,
		"/v1/weights?version=4": http.MethodPut} {
		status, _, data = call(t, s, method, path, "\x1f\x8b", "Content-Encoding", "gzip")
		require.Equal(t, http.StatusUnsupportedMediaType, status)
		message, _, _ := errorOf(t, data)
		require.Equal(t, `Content-Encoding "gzip" is not supported, expected none`, message)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, func(c *Config) { c.Token = "secret" })
	for _, path := range []string{"/v1/models", "/v1/weights", "/metrics"} {
		for given, want := range map[string]int{"": 401, "Bearer ": 401, "secret": 401, "Bearer wrong": 401,
			"Bearer secret": 200} {
			status, _, data := call(t, s, http.MethodGet, path, "", "Authorization", given)
			require.Equal(t, want, status, "%s with %q: %s", path, given, data)
			if want != 200 {
				require.Contains(t, string(data), "inference.token_file")
			}
		}
	}
	status, _, _ := call(t, s, http.MethodGet, "/health", "")
	require.Equal(t, 200, status)
	cfg := DefaultConfig()
	cfg.Listen = "0.0.0.0:0"
	_, err := New(cfg, newFake(), nil)
	require.ErrorContains(t, err, "beyond loopback")
	cfg.Insecure = true
	open, err := New(cfg, newFake(), nil)
	require.NoError(t, err)
	require.NoError(t, open.Close())
	_, err = New(Config{}, newFake(), nil)
	require.ErrorContains(t, err, "max concurrent")
}

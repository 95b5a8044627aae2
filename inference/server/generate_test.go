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

// Token IDs go in and come out, with log-probabilities in the shapes that old and new
// clients read.
func TestGenerateIDs(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	want, err := backend.Generate(t.Context(),
		inference.Request{PromptIDs: []int32{97, 98, 99}, N: 2, Seed: 5, TopLogprobs: 2,
			Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 20, StopIDs: []int32{105, fakeEOS}}})
	require.NoError(t, err)
	status, _, data := call(t, s, http.MethodPost, "/inference/v1/generate",
		`{"model":"tiny","request_id":"mine","token_ids":[97,98,99],
		"sampling_params":{"n":2,"return_token_ids":true,"seed":5,"max_tokens":20,"stop_token_ids":[105],`+
			`"logprobs":2,"prompt_logprobs":1,"skip_special_tokens":false,"routed_experts_prompt_start":4},
		"cache_salt":"1","priority":0,"stream":false,"features":null}`)
	require.Equal(t, http.StatusOK, status, "%s", data)
	type logprob struct {
		Token   string
		TokenID int32 `json:"token_id"`
		Logprob float32
		Top     []logprob `json:"top_logprobs"`
	}
	var got struct {
		RequestID string `json:"request_id"`
		Mode      string `json:"output_mode"`
		Model     string
		Choices   []struct {
			Index    int
			Finish   string  `json:"finish_reason"`
			IDs      []int32 `json:"token_ids"`
			Logprobs struct{ Content []logprob }
			Versions []any `json:"weight_versions"`
		}
		PromptIDs      []int32 `json:"prompt_token_ids"`
		PromptLogprobs []map[string]struct {
			Logprob float32
			Text    string `json:"decoded_token"`
		} `json:"prompt_logprobs"`
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, "mine", got.RequestID)
	require.Equal(t, "tokens", got.Mode)
	require.Equal(t, "tiny", got.Model)
	require.Equal(t, []int32{97, 98, 99}, got.PromptIDs)
	require.Equal(t, 3+len(want[0].IDs)+len(want[1].IDs), got.Usage.Total)
	require.Len(t, got.PromptLogprobs, 3)
	require.Nil(t, got.PromptLogprobs[0])
	require.Len(t, got.PromptLogprobs[1], 2)
	require.Equal(t, "token_id:65", got.PromptLogprobs[1]["65"].Text)
	require.InDelta(t, -1./3, got.PromptLogprobs[1]["98"].Logprob, 1e-6)
	require.Len(t, got.Choices, 2)
	for i, c := range got.Choices {
		require.Equal(t, want[i].IDs, c.IDs)
		require.EqualValues(t, want[i].Finish, c.Finish)
		require.Equal(t, []any{map[string]any{"version": "3", "start": 0.0, "end": float64(len(c.IDs))}}, c.Versions)
		require.Len(t, c.Logprobs.Content, len(c.IDs))
		for k, l := range c.Logprobs.Content {
			require.Equal(t, want[i].IDs[k], l.TokenID)
			require.Equal(t, fmt.Sprintf("token_id:%d", l.TokenID), l.Token)
			require.Equal(t, want[i].Logprobs[k], l.Logprob)
			require.Len(t, l.Top, 2)
			require.Equal(t, l.TokenID, l.Top[0].TokenID)
			require.Equal(t, want[i].Top[k][1].ID, l.Top[1].TokenID)
		}
	}
}

// Without max_tokens an answer may fill the context.
func TestGenerateDefaults(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, nil, nil)
	status, got := post(t, s, "/inference/v1/generate", `{"token_ids":[1,2],"sampling_params":{"ignore_eos":true}}`)
	require.Equal(t, http.StatusOK, status, "%v", got)
	require.True(t, strings.HasPrefix(got["request_id"].(string), "generate-"))
	c := got["choices"].([]any)[0].(map[string]any)
	require.Len(t, c["token_ids"], 4094)
	require.Nil(t, c["logprobs"])
	require.NotContains(t, c, "text")
	require.NotContains(t, got, "prompt_token_ids")
	require.EqualValues(t, 1, backend.last.Sampling.Temperature)
}

func TestGenerateRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	for _, test := range []struct{ body, param, message string }{
		{`{"token_ids":[1]}`, "sampling_params", "no sampling_params, expected an object"},
		{`{"token_ids":[1],"sampling_params":[]}`, "sampling_params", "sampling_params [], expected an object"},
		{`{"sampling_params":{}}`, "token_ids", "no token_ids, expected at least one token id"},
		{`{"token_ids":[1,null],"sampling_params":{}}`, "token_ids", "token_ids [1,null], expected token ids"},
		{`{"token_ids":[[1]],"sampling_params":{}}`, "token_ids", "token_ids [[1]], expected token ids"},
		{`{"token_ids":[257],"sampling_params":{}}`, "token_ids", "prompt 0 token 0 is 257, expected 0 to 256"},
		{`{"token_ids":[1],"sampling_params":{},"stream":true}`, "stream",
			"stream true is not supported, expected false"},
		{`{"token_ids":[1],"sampling_params":{},"output_mode":"text"}`, "output_mode",
			`output_mode "text" is not supported, expected "tokens"`},
		{`{"token_ids":[1],"sampling_params":{},"features":{"mm_hashes":{}}}`, "features",
			`features {"mm_hashes":{}} is not supported, expected no such field`},
		{`{"token_ids":[1],"sampling_params":{"presence_penalty":1}}`, "presence_penalty",
			"presence_penalty 1 is not supported, expected 0"},
		{`{"token_ids":[1],"sampling_params":{"echo":true}}`, "echo",
			"echo true is not supported, expected no such field"},
		{`{"token_ids":[1],"sampling_params":{"logprobs":-1}}`, "logprobs", "logprobs -1, expected 0 to 20"},
		{`{"token_ids":[1],"sampling_params":{"max_tokens":4096}}`, "max_tokens",
			"This model's maximum context length is 4096 tokens. However, you requested 4097 tokens (1 in the " +
				"prompt, 4096 in the completion). Shorten the prompt or lower max_tokens"},
		{`{"token_ids":[1],"sampling_params":{},"request_id":"` + strings.Repeat("x", 257) + `"}`, "request_id",
			"request_id has 257 bytes, expected at most 256"},
	} {
		status, _, data := call(t, s, http.MethodPost, "/inference/v1/generate", test.body)
		require.Equal(t, http.StatusBadRequest, status, "%s: %s", test.body, data)
		message, _, param := errorOf(t, data)
		require.Equal(t, test.param, param, test.body)
		require.Equal(t, test.message, message, test.body)
	}
}

// echo returns the likeliest tokens of the prompt too, as lm-eval reads them, for each
// prompt of a batch.
func TestEchoTop(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	for limit, after := range map[int]int{0: 0, 1: 1} {
		status, got := post(t, s, "/v1/completions", fmt.Sprintf(
			`{"prompt":[[97,98,99],[66,65]],"echo":true,"max_tokens":%d,"logprobs":1,"prompt_logprobs":3,`+
				`"temperature":0,"seed":1234}`, limit))
		require.Equal(t, http.StatusOK, status, "%v", got)
		require.Len(t, got["choices"], 2)
		for i, n := range []int{3, 2} {
			c := got["choices"].([]any)[i].(map[string]any)
			logprobs := c["logprobs"].(map[string]any)
			for _, list := range []string{"tokens", "token_logprobs", "top_logprobs", "text_offset"} {
				require.Len(t, logprobs[list], n+after, list)
			}
			top := logprobs["top_logprobs"].([]any)
			require.Nil(t, top[0])
			require.Len(t, c["prompt_logprobs"].([]any)[1], []int{4, 3}[i], "three likeliest and the token itself")
			if i == 0 {
				require.Equal(t, map[string]any{"A": 0.0, "b": logprobs["token_logprobs"].([]any)[1]}, top[1])
			} else {
				require.Len(t, top[1], 1, "the token is the likeliest")
			}
		}
	}
}

// A prompt keeps its last tokens: as many as asked for, or as many as fit.
func TestTruncate(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, nil)
	long := strings.Repeat("a", 5000) + "xyz"
	for _, test := range []struct {
		path, body string
		want       int
	}{
		{"/v1/completions", `"prompt":"` + long + `","truncate_prompt_tokens":2,"echo":true`, 2},
		{"/v1/completions", `"prompt":"` + long + `","truncate_prompt_tokens":-1,"max_tokens":96`, 4000},
		{"/v1/completions", `"prompt":"` + long + `","truncate_prompt_tokens":-1,"echo":true,"max_tokens":0`, 4095},
		{"/v1/completions", `"prompt":"` + long + `","truncate_prompt_tokens":-1`, 4095},
		{"/v1/completions", `"prompt":"xyz","truncate_prompt_tokens":4`, 3},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"` + long + `"}],"truncate_prompt_tokens":14`,
			14},
		{"/inference/v1/generate", `"token_ids":[5,6,7],"sampling_params":{"truncate_prompt_tokens":1}`, 1},
	} {
		status, got := post(t, s, test.path, `{`+test.body+`}`)
		require.Equal(t, http.StatusOK, status, "%v", got)
		require.Len(t, backend.last.PromptIDs, test.want)
		require.EqualValues(t, test.want, got["usage"].(map[string]any)["prompt_tokens"])
		if test.want == 2 {
			require.Equal(t, []int32{'y', 'z'}, backend.last.PromptIDs)
			require.Equal(t, "yz", got["choices"].([]any)[0].(map[string]any)["text"].(string)[:2])
		}
	}
	status, got := post(t, s, "/v1/completions", `{"prompt":"`+long+`","truncate_prompt_tokens":4096}`)
	require.Equal(t, http.StatusBadRequest, status, "%v", got)
}

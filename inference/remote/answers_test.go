package remote

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/rollout"
)

const goodChoice = `{"index":0,"text":"ab","finish_reason":"stop","token_ids":[1,2],` +
	`"logprobs":{"token_logprobs":[-0.1,-1.5e-45]}}`

func TestDecodeCompletions(t *testing.T) {
	t.Parallel()
	choice := func(old, new string) string { return strings.Replace(goodChoice, old, new, 1) }
	tests := []struct{ name, choices, want string }{
		{"good", goodChoice, ""},
		{"longer than requested", choice("[1,2]", "[1,2,3,4,5]"), "5 tokens, expected at most 4"},
		{"fewer log-probabilities", choice("[1,2]", "[1,2,3]"), "3 tokens but 2 log-probabilities"},
		{"null", choice("-0.1", "null"), "token 0 has log-probability null"},
		{"NaN", choice("-0.1", "NaN"), "unexpected response body"},
		{"-Infinity", choice("-0.1", "-Infinity"), "unexpected response body"},
		{"exceeds float32", choice("-0.1", "-1e99"), "unexpected response body"},
		{"impossible token", choice("-0.1", "-9999.0"), "log-probability -9999"},
		{"positive", choice("-0.1", "0.1"), "at most 0"},
		{"negative id", choice("[1,2]", "[1,-2]"), "token 1 is -2"},
		{"large id", choice("[1,2]", "[1,4294967297]"), "unexpected response body"},
		{"no tokens", choice("[1,2]", "[]"), "no tokens"},
		{"no log-probabilities", choice(`"logprobs":{"token_logprobs":[-0.1,-1.5e-45]}`, `"logprobs":null`),
			"no log-probabilities"},
		{"finish", choice("stop", "content_filter"), `finish reason "content_filter"`},
		{"index", choice(`"index":0`, `"index":1`), "index 1"},
		{"twice", goodChoice + "," + goodChoice, "2 choices, expected 1"},
		{"another prompt", choice(`"index"`, `"prompt_token_ids":[5,6],"index"`), "the server sampled another prompt"},
		{"tokens as text", choice(`"token_ids":[1,2]`, `"token_ids":null`), "choice 0: no tokens"},
		{"none", "", "0 choices, expected 1"},
		{"truncated", goodChoice[:40], "unexpected response body"},
	}
	req := request(1)
	for _, test := range tests {
		out, err := readCompletions([]byte(`{"choices":[`+test.choices+`]}`), &req)
		if test.want == "" {
			require.NoError(t, err)
			require.Equal(t, []inference.Completion{{IDs: []int32{1, 2}, Logprobs: []float32{-0.1, -1e-45}, Text: "ab",
				Finish: rollout.Stop}}, out)
			continue
		}
		require.ErrorContains(t, err, test.want, test.name)
	}
	two := request(2)
	_, err := readCompletions([]byte(`{"choices":[`+goodChoice+","+goodChoice+`]}`), &two)
	require.ErrorContains(t, err, "choice 1 has index 0, expected each of 0 to 1 once", "a duplicate")
}

func readCompletions(data []byte, req *inference.Request) ([]inference.Completion, error) {
	var a completionAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, transport.ErrBody
	}
	return decodeAnswer(&a, req, req.Sampling.MaxTokens)
}

// Servers without return_token_ids send IDs in place of tokens.
func TestTokensAsIDs(t *testing.T) {
	t.Parallel()
	req := request(1)
	out, err := readCompletions([]byte(`{"choices":[{"index":0,"text":"","finish_reason":"length",
		"logprobs":{"tokens":["token_id:17","token_id:0"],"token_logprobs":[-1,0]}}]}`), &req)
	require.NoError(t, err)
	require.Equal(t, []int32{17, 0}, out[0].IDs)
	for _, bad := range []string{"17", "token_id:", "token_id:x", "token_id:4294967296"} {
		_, err := readCompletions([]byte(`{"choices":[{"index":0,"finish_reason":"length","logprobs":{"tokens":["`+bad+
			`"],"token_logprobs":[-1]}}]}`), &req)
		require.ErrorContains(t, err, "expected a token id or token_id:N", bad)
	}
}

// Log-probabilities cross the wire bit for bit.
func TestFloatsRoundTrip(t *testing.T) {
	t.Parallel()
	req := request(1)
	req.Sampling.MaxTokens = 1 << 20
	var ids []int32
	var logprobs []float32
	for bits := uint32(0x80000000); len(logprobs) < 1<<16; bits += 0x461b {
		if v := math.Float32frombits(bits); v > noLogprob {
			ids, logprobs = append(ids, 1), append(logprobs, v)
		}
	}
	data, err := json.Marshal(
		object{"choices": []any{object{"index": 0, "finish_reason": "stop", "token_ids": ids,
			"logprobs": object{"token_logprobs": logprobs}}}})
	require.NoError(t, err)
	out, err := readCompletions(data, &req)
	require.NoError(t, err)
	for i := range logprobs {
		require.Equal(t, math.Float32bits(logprobs[i]), math.Float32bits(out[0].Logprobs[i]))
	}
}

const goodSGLang = `{"text":"ab","output_ids":[9,9,9],"meta_info":{"finish_reason":{"type":"stop","matched":2},` +
	`"weight_version":"v1-a",
	"prompt_tokens":3,"output_token_logprobs":[[-0.1,1,null],[-0.2,2,"b"]]}}`

func TestDecodeSGLang(t *testing.T) {
	t.Parallel()
	edited := func(old, new string) string { return strings.Replace(goodSGLang, old, new, 1) }
	tests := []struct{ name, answer, want string }{
		{"good", goodSGLang, ""},
		{"a list of one", "[" + goodSGLang + "]", ""},
		{"null", edited("-0.1", "null"), "token 0 has log-probability null"},
		{"no id", edited("1,null", "null,null"), "token has no id"},
		{"short token", edited("[-0.1,1,null]", "[-0.1]"), "token has 1 entries"},
		{"other weights", edited("v1-a", "default"), "stale weights"},
		{"weights changed midway", edited(`"prompt_tokens"`,
			`"weight_versions":[{"version":"v0-a","start":0,"end":1}],"prompt_tokens"`), "stale weights"},
		{"another prompt", edited(`"prompt_tokens":3`, `"prompt_tokens":2`),
			"the server's prompt has 2 tokens, expected 3"},
		{"finish", edited(`"stop"`, `"error"`), `finish reason "error"`},
		{"finish is null", edited(`{"type":"stop","matched":2}`, "null"), "finish reason"},
		{"no tokens", edited(`[[-0.1,1,null],[-0.2,2,"b"]]`, "[]"), "no tokens"},
		{"two", "[" + goodSGLang + "," + goodSGLang + "]", "2 responses, expected 1"},
		{"truncated", goodSGLang[:50], "unexpected response body"},
		{"not an object", "17", "unexpected response body"},
		{"empty", "", "unexpected response body"},
	}
	req := request(1)
	for _, test := range tests {
		out, unlabelled, err := decodeSGLang([]byte(test.answer), &req, 4, "v1-a")
		if test.want == "" {
			require.NoError(t, err, test.name)
			require.False(t, unlabelled)
			require.Equal(t, []inference.Completion{{IDs: []int32{1, 2}, Logprobs: []float32{-0.1, -0.2}, Text: "ab",
				Finish: rollout.Stop}}, out)
			continue
		}
		require.ErrorContains(t, err, test.want, test.name)
	}
	_, unlabelled, err := decodeSGLang([]byte(strings.Replace(goodSGLang, `"weight_version":"v1-a",`, "", 1)),
		&req, 4, "v1-a")
	require.NoError(t, err)
	require.True(t, unlabelled)
}

// Every response that decodes from arbitrary bytes is complete.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"choices":[` + goodChoice + `]}`))
	f.Add([]byte(goodSGLang))
	f.Add([]byte("[" + goodSGLang + "]"))
	f.Add(
		[]byte(
			`{"choices":[{"index":0,"finish_reason":"abort","prompt_logprobs":[null,{"6":{"logprob":-1}},` +
				`{"7":{}}],"logprobs":{"top_logprobs":[null]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		req := request(1)
		req.PromptLogprobs, req.TopLogprobs = len(data)%2 == 0, len(data)%3
		whole := func(out []inference.Completion, err error) {
			if err != nil {
				return
			}
			require.Len(t, out, 1)
			c := out[0]
			require.Len(t, c.Logprobs, len(c.IDs))
			require.LessOrEqual(t, len(c.IDs), 4)
			for _, l := range c.Logprobs {
				require.False(t, math.IsNaN(float64(l)) || math.IsInf(float64(l), 0))
			}
			if req.PromptLogprobs && c.Finish != finishAbort {
				require.Len(t, c.PromptLogprobs, len(req.PromptIDs))
			}
			if req.TopLogprobs > 0 && c.Finish != finishAbort {
				require.Len(t, c.Top, len(c.IDs))
			}
		}
		whole(readCompletions(data, &req))
		out, _, err := decodeSGLang(data, &req, 4, "v1-a")
		whole(out, err)
	})
}

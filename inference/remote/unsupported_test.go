package remote

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// at serves fixed bodies by path.
func at(t *testing.T, bodies map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const models = `{"object":"list","data":[{"id":"m","max_model_len":4096}]}`

// A program that is no inference server of a known kind, or one of another kind than given, is
// named.
func TestUnsupportedServers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind   string
		bodies map[string]string
		want   string // after the URL; empty if the server is accepted
	}{
		{"", map[string]string{"/api/version": `{"version":"0.9.1"}`, "/v1/models": models},
			": not a known server: it is Ollama, expected easyrl, vLLM or SGLang"},
		{VLLM, map[string]string{"/api/version": `{"version":"0.9.1"}`, "/v1/models": models},
			": it is Ollama, expected vLLM"},
		{"", map[string]string{"/info": `{"model_id":"m","sha":"1"}`},
			": not a known server: it is Text Generation Inference, "},
		{"", map[string]string{"/v1/models": models},
			": not a known server: it is a server of OpenAI's API of another kind, "},
		{"", map[string]string{"/": "<html>"}, ": not a known server, expected "},
		{"", map[string]string{"/status": `{"step":3,"state":"training"}`},
			": it is the control address of an easyrl trainer, not a server, "},
		{VLLM, map[string]string{"/get_model_info": `{"model_path":"m"}`, "/version": `{"version":"1"}`,
			"/v1/models": models}, "it is SGLang, but its kind is given as \"vllm\"; name it \"sglang\""},
		{VLLM, map[string]string{"/version": `{"version":"0.11"}`, "/v1/models": models}, ""},
		{VLLM, map[string]string{"/v1/models": models}, ""}, // behind a proxy that hides the rest
		{SGLang, map[string]string{"/props": `{"total_slots":4}`},
			"it is llama.cpp, which accepts no weights, expected SGLang"},
	} {
		_, err := Dial(t.Context(), Config{URL: at(t, test.bodies), Kind: test.kind})
		if test.want == "" {
			require.NoError(t, err, test.bodies)
			continue
		}
		require.ErrorContains(t, err, test.want, test.bodies)
	}
}

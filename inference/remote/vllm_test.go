package remote

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// vLLM answers 200 and keeps its prefix cache while a request holds part of it.
func TestVLLMResetsCache(t *testing.T) {
	t.Parallel()
	for refusals, want := range map[int]string{0: "", 3: "",
		1000: "POST /reset_prefix_cache: success is false, expected true"} {
		t.Run(fmt.Sprint(refusals), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, VLLM)
				left := refusals
				f.edit = func(path string, answer any) any {
					if path != "/reset_prefix_cache" {
						return answer
					}
					left--
					return object{"success": left < 0}
				}
				_, err := f.dial().Publish(t.Context(), fakeWeights{1, 1})
				if want != "" {
					require.ErrorContains(t, err, want)
					require.False(t, f.paused, "resumed although the cache is not empty")
					return
				}
				require.NoError(t, err)
				require.Equal(t, refusals+1, f.called("/reset_prefix_cache"))
			})
		})
	}
}

// A cache outside the server is emptied too.
func TestVLLMResetsExternalCache(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	f.edit = func(path string, answer any) any {
		if path == "/server_info" {
			answer.(object)["vllm_config"].(object)["kv_transfer_config"] = object{"kv_connector": "some"}
		}
		return answer
	}
	_, err := f.dial().Publish(t.Context(), fakeWeights{1, 1})
	require.NoError(t, err)
	require.Equal(t, 1, f.called("/reset_prefix_cache?reset_external=true"))
}

// vLLM samples a lower temperature at 0.01: a distribution other than the trainer's.
func TestVLLMLowTemperatures(t *testing.T) {
	t.Parallel()
	inst := newFake(t, VLLM).dial()
	for _, temperature := range []float32{0, 0.01, 0.02} {
		req := request(1)
		req.Sampling.Temperature = temperature
		_, err := inst.Generate(t.Context(), req)
		require.NoError(t, err, temperature)
	}
	req := request(1)
	req.Sampling.Temperature = 0.005
	_, err := inst.Generate(t.Context(), req)
	require.ErrorContains(t, err, "temperature is 0.005, expected 0 or at least 0.01")
}

// Whichever call a server refuses for want of a token, the error says which setting has it.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	const want = "Set inference.token_file to the server's bearer token"
	for _, kind := range allKinds() {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
			f := newFake(t, kind)
			inst := f.dial()
			f.set(func() {
				f.fault = func(w http.ResponseWriter, r *http.Request) bool {
					_, _ = io.Copy(io.Discard, r.Body)
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"error":"Unauthorized"}`)
					return true
				}
			})
			_, err := inst.Generate(t.Context(), request(1))
			require.ErrorContains(t, err, want, "%s %d", kind, status)
			_, err = inst.Publish(t.Context(), fakeWeights{1, 1})
			require.ErrorContains(t, err, want, "%s %d", kind, status)
			require.ErrorContains(t, inst.Probe(t.Context()), want, "%s %d", kind, status)
			_, err = Dial(t.Context(), f.config())
			require.ErrorContains(t, err, want, "%s %d", kind, status)
			named := f.config()
			named.Kind = kind
			_, err = Dial(t.Context(), named)
			require.ErrorContains(t, err, want, "%s %d", kind, status)
		}
	}
}

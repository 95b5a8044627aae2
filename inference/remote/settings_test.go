package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A response's seed depends on its index, not on the request that asks for it.
func TestFirstIndex(t *testing.T) {
	t.Parallel()
	seeds := func(kind string, first int) any {
		f := newFake(t, kind)
		f.seeded = true
		req := request(1)
		req.Seed, req.FirstIndex = 1<<40+5, first
		_, err := f.dial().Generate(t.Context(), req)
		require.NoError(t, err)
		body := f.bodies[samples(kind)]
		switch kind {
		case EasyRL:
			return body["sample_index"]
		case SGLang:
			return body["sampling_params"].([]any)[0].(object)["sampling_seed"]
		}
		return body["seed"]
	}
	for kind, base := range map[string]float64{VLLM: 1<<40 + 5, SGLang: 256 + 5} {
		require.InDelta(t, base, seeds(kind, 0), 0, kind)
		require.InDelta(t, base+3, seeds(kind, 3), 0, kind)
	}
	require.Nil(t, seeds(EasyRL, 0))
	require.InDelta(t, 3, seeds(EasyRL, 3), 0)
}

func TestSeed31(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, seed31(1, 0), seed31(1<<32|1, 0), "the upper half of the seed counts")
	for i := range 100 {
		seed := seed31(1<<64-1, i)
		require.LessOrEqual(t, seed, uint32(1<<31-1))
		require.NotEqual(t, seed, seed31(1<<64-1, i+1))
	}
}

// A deterministic SGLang gives the same draws to all responses with the same seed, or
// with none.
func TestSGLangSeeds(t *testing.T) {
	t.Parallel()
	f := newFake(t, SGLang)
	f.seeded = true
	inst := f.dial()
	req := request(3)
	out, err := inst.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, out, 3)
	require.NotEqual(t, out[0].IDs, out[1].IDs)
	require.NotEqual(t, out[1].IDs, out[2].IDs)
	again, err := inst.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, out, again)
	req.FirstIndex, req.N = 1, 2
	rest, err := inst.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, out[1:], rest)
	req.FirstIndex, req.N = 2, 1
	last, err := inst.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, out[2:], last)
}

// Without development mode vLLM reports no settings, and an older one reports them as
// prose.
func TestVLLMWithoutSettings(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	f.without["/server_info"] = true
	require.Equal(t, 256, f.dial().Capacity())
	prose := newFake(t, VLLM)
	prose.edit = func(path string, answer any) any {
		if path == "/server_info" {
			return object{"vllm_config": "model='tiny', seed=0"}
		}
		return answer
	}
	require.Equal(t, 256, prose.dial().Capacity())
}

// Log-probabilities without the temperature belong to a distribution other than the
// sampled one.
func TestVLLMLogprobsMode(t *testing.T) {
	t.Parallel()
	fakeWith := func(mode string) *fake {
		f := newFake(t, VLLM)
		f.edit = func(path string, answer any) any {
			if path == "/server_info" {
				answer.(object)["vllm_config"].(object)["model_config"].(object)["logprobs_mode"] = mode
			}
			return answer
		}
		return f
	}
	for _, mode := range []string{"raw_logprobs", "processed_logprobs"} {
		inst := fakeWith(mode).dial()
		for _, temperature := range []float32{0, 0.5, 1} {
			req := request(1)
			req.Sampling.Temperature = temperature
			_, err := inst.Generate(t.Context(), req)
			if mode == "raw_logprobs" && temperature == 0.5 {
				require.ErrorContains(t, err,
					"log-probabilities ignore the temperature 0.5. Run vLLM with --logprobs-mode processed_logprobs")
				continue
			}
			require.NoError(t, err, "%s %v", mode, temperature)
		}
	}
	_, err := Dial(t.Context(), fakeWith("processed_logits").config())
	require.ErrorContains(t, err, `logprobs_mode "processed_logits", expected processed_logprobs`)
}

// A server that is starting is not mistaken for one of another kind.
func TestDialStartingServer(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	f.fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"object":"error","message":"Loading model"}`)
		return true
	}
	_, err := Dial(t.Context(), f.config())
	require.EqualError(t, err, "instance http://fake:8000: GET /v1/weights: status 503: Loading model")
}

// Servers close connections that idle for 5 seconds. The client stops using them earlier.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for pause, fresh := range map[time.Duration]int{time.Second: 0, 4900 * time.Millisecond: 1} {
		t.Run(fmt.Sprint(pause), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, VLLM)
				dials := 0
				inst := f.dial(func(c *Config) {
					dial := c.dial
					c.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						dials++
						return dial(ctx, network, addr)
					}
				})
				before := dials
				<-time.After(pause)
				require.NoError(t, inst.Probe(t.Context()))
				require.Equal(t, before+fresh, dials)
			})
		})
	}
}

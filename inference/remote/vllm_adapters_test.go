package remote

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// fakeAdapter is an adapter of one number.
type fakeAdapter struct{ fakeWeights }

func (fakeAdapter) Config() []byte { return []byte(`{"r":8}`) }

func adapter(version int64, value float32) fakeAdapter {
	return fakeAdapter{fakeWeights{version, value}}
}

// nameOf returns the name under which a server holds w.
func nameOf(w inference.Weights) string { return adapterPrefix + publish.Label(w) }

// takes makes a client publish adapters.
func takes(c *Config) { c.Adapters = true }

// judges adds a canary whose trainer has the log-probabilities of the fake under each version.
func judges(f *fake, of map[int64]float32) func(c *Config) {
	prompt := []int32{3, 1, 4, 1, 5}
	under := func(value float32) []float32 {
		out := []float32{0}
		for i := 1; i < len(prompt); i++ {
			out = append(out, (&fake{value: value}).promptLogprob(prompt, i))
		}
		return out
	}
	return func(c *Config) {
		c.Canary = &publish.Canary{Prompt: prompt,
			Logprobs: func(_ context.Context, version int64) ([]float32, error) { return under(of[version]), nil },
			Perturb: func(context.Context) (*publish.Perturbed, error) {
				return &publish.Perturbed{Weights: adapter(0, 9), Prompt: prompt, Logprobs: under(9), Limit: 1,
					Free: func() {}}, nil
			}}
	}
}

func (f *fake) held() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.adapters))
}

// Requests name the adapter of the last publish, which the server alone keeps. The weights
// below it and other adapters stay.
func TestAdapters(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	f.adapters["mine"] = 1
	inst := f.dial(takes, judges(f, map[int64]float32{1: 0.5, 2: 0.75}))
	for version, value := range []float32{0.5, 0.75} {
		w := adapter(int64(version+1), value)
		sum, err := inst.Publish(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, w.Checksum(), sum)
		require.Equal(t, []string{nameOf(w), "mine"}, f.held())
		out, err := inst.Generate(t.Context(), request(2))
		require.NoError(t, err)
		require.Equal(t, w.Version(), out[0].Version)
		require.Equal(t, nameOf(w), f.bodies["/v1/completions"]["model"])
		require.Equal(t, publish.Label(w), f.bodies["/v1/completions"]["cache_salt"])
	}
	require.Equal(t, 3, f.called("/v1/load_lora_adapter"), "a perturbed adapter and two versions")
	require.Zero(t, f.called("/collective_rpc")+f.called("/pause"))

	_, err := inst.Publish(t.Context(), adapter(2, 0.75))
	require.NoError(t, err, "the same version again")
	require.Equal(t, 4, f.called("/v1/load_lora_adapter"), "without the perturbed one")
}

// A server that lost its adapters gets no work until it has been verified again.
func TestLostAdapter(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	inst := f.dial(takes, judges(f, map[int64]float32{1: 0.5, 2: 0.75}))
	_, err := inst.Publish(t.Context(), adapter(1, 0.5))
	require.NoError(t, err)
	f.restart()
	_, err = inst.Generate(t.Context(), request(1))
	require.ErrorIs(t, err, inference.ErrStale)
	require.NotErrorIs(t, err, inference.ErrInvalid)
	require.ErrorContains(t, err, "(adapter "+nameOf(adapter(1, 0.5))+" is not loaded)")
	_, err = inst.Publish(t.Context(), adapter(2, 0.75))
	require.NoError(t, err)
	require.Equal(t, 4, f.called("/v1/load_lora_adapter"), "two perturbed adapters and two versions")
}

// A server that ignores adapters is refused before it samples.
func TestIgnoredAdapter(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	f.old = true
	_, err := f.dial(takes, judges(f, map[int64]float32{1: 0.5})).Publish(t.Context(), adapter(1, 0.5))
	require.ErrorContains(t, err,
		"under perturbed weights, log-probabilities differ from the trainer's by 9, expected at most 1")
	require.ErrorContains(t, err, adapterRemedy)
}

func TestAdapterFaults(t *testing.T) {
	t.Parallel()
	const load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
	for name, c := range map[string]struct {
		path, want string
		status     int
		text       string
	}{
		"no route": {load, "not found. Run vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", 404,
			`{"detail":"Not Found"}`},
		"disabled": {load, "LoRA is not enabled. Use it. Run vLLM with --enable-lora", 500,
			`{"error":{"message":"LoRA is not enabled. Use it"}}`},
		"rank": {load, "greater than max_lora_rank 8. Run vLLM with --enable-lora and a --max-lora-rank of at " +
			"least torch.lora_rank", 500, `{"error":{"message":"LoRA rank 16 is greater than max_lora_rank 8"}}`},
		"folder": {load, "No adapter found for /x. Run vLLM", 404,
			`{"error":{"message":"Loading lora failed: No adapter found for /x"}}`},
		"forgotten":  {load, "GET /v1/models: no adapter " + nameOf(adapter(2, 0.75)), 200, "Success"},
		"not unload": {unload, "", 500, `{"error":{"message":"busy"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, VLLM)
			inst := f.dial(takes)
			_, err := inst.Publish(t.Context(), adapter(1, 0.5))
			require.NoError(t, err)
			f.set(func() {
				f.fault = func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != c.path {
						return false
					}
					_, _ = io.Copy(io.Discard, r.Body)
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.text)
					return true
				}
			})
			_, err = inst.Publish(t.Context(), adapter(2, 0.75))
			if c.want == "" {
				require.NoError(t, err, "requests do not name the old adapter")
				require.Len(t, f.held(), 2)
			} else {
				require.ErrorContains(t, err, c.want)
				require.NotErrorIs(t, err, inference.ErrStale)
				_, err = inst.Generate(t.Context(), request(1))
				require.ErrorIs(t, err, inference.ErrStale)
			}
			f.set(func() { f.fault = nil })
			_, err = inst.Publish(t.Context(), adapter(3, 1))
			require.NoError(t, err)
			require.Equal(t, []string{nameOf(adapter(3, 1))}, f.held())
		})
	}
}

// Only vLLM takes adapters, and no settings of a server are guessed.
func TestAdapterServers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{EasyRL, SGLang} {
		f := newFake(t, kind)
		cfg := f.config()
		cfg.Adapters = true
		_, err := Dial(t.Context(), cfg)
		require.ErrorContains(t, err, "kind is "+kind+", expected vllm, which takes LoRA adapters")
	}
	f := newFake(t, VLLM)
	f.without["/server_info"] = true
	inst := f.dial(takes)
	_, err := inst.Publish(t.Context(), adapter(1, 0.5))
	require.NoError(t, err)
	_, err = inst.Generate(t.Context(), request(1))
	require.NoError(t, err)
	req := request(1)
	req.Sampling.Temperature = 0.7
	_, err = inst.Generate(t.Context(), req)
	require.ErrorContains(t, err, "expected one with a temperature of 0.7. Run vLLM with VLLM_SERVER_DEV_MODE=1")
}

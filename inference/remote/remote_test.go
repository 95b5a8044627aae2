package remote

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/rollout"
)

func allKinds() []string { return []string{EasyRL, VLLM, SGLang} }

func TestDialRecognises(t *testing.T) {
	t.Parallel()
	capacity := map[string]int{EasyRL: 7, VLLM: 192, SGLang: 48}
	cores := map[string]int{EasyRL: 3} // others report none
	for _, kind := range allKinds() {
		inst := newFake(t, kind).dial()
		require.Equal(t, kind, inst.Kind().Name)
		require.Equal(t, "http://fake:8000", inst.ID())
		require.Equal(t, capacity[kind], inst.Capacity())
		require.Equal(t, cores[kind], inst.(inference.Hosted).Cores())
		require.NoError(t, inst.Probe(t.Context()))
		require.NoError(t, inst.Close())
		_, err := inst.Generate(t.Context(), request(1))
		require.ErrorIs(t, err, inference.ErrClosed)
	}
	old := newFake(t, SGLang)
	old.without["/model_info"], old.without["/server_info"] = true, true
	inst := old.dial()
	require.Equal(t, SGLang, inst.Kind().Name)
	require.Equal(t, 48, inst.Capacity())
}

func TestDialRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                 "expected http://host:port",
		"fake:8000":        "instance: url",
		"ftp://fake":       "expected http://host:port",
		"http://u:p@h:1":   "http://u:xxxxx@h:1",
		"http://fake?x=1":  "expected http://host:port",
		"http://fake:port": "invalid port",
	} {
		_, err := Dial(t.Context(), Config{URL: url})
		require.ErrorContains(t, err, want, url)
	}
	_, err := Dial(t.Context(), Config{URL: "http://fake", Kind: "trl", Capacity: -1, Canary: &publish.Canary{}})
	require.ErrorContains(t, err, `kind "trl", expected `+Expected())
	require.ErrorContains(t, err, "capacity -1")
	require.ErrorContains(t, err, "canary: prompt has 0 tokens")

	f := newFake(t, "other server")
	_, err = Dial(t.Context(), f.config())
	require.EqualError(t, err,
		"instance http://fake:8000: not a known server: it is a server of OpenAI's API of another kind, expected "+
			join(titles()))
	cfg := newFake(t, VLLM).config()
	cfg.Model = "other"
	_, err = Dial(t.Context(), cfg)
	require.ErrorContains(t, err, `no model "other"; the first is "tiny"`)
}

func TestToken(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer secret" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	_, err := Dial(t.Context(), f.config())
	require.ErrorContains(t, err, "status 401. Set inference.token_file to the server's bearer token")
	inst := f.dial(func(c *Config) { c.Token = "secret" })
	_, err = inst.Generate(t.Context(), request(2))
	require.NoError(t, err)
}

// Every kind returns the tokens and log-probabilities of each response exactly as the
// server drew them.
func TestGenerate(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, kind)
			inst := f.dial()
			req := request(3)
			out, err := inst.Generate(t.Context(), req)
			require.NoError(t, err)
			require.Len(t, out, 3)
			for i, c := range out {
				seed := i
				ids, logprobs := f.sample(req.PromptIDs, seed, 4)
				want := inference.Completion{IDs: ids, Logprobs: logprobs, Text: "text", Finish: rollout.Length}
				if kind == EasyRL {
					want.Checksum = fakeWeights{}.Checksum()
				}
				require.Equal(t, want, c)
			}
		})
	}
}

// Requests set everything that generation_config would change.
func TestSamplingIsExplicit(t *testing.T) {
	t.Parallel()
	req := request(2)
	req.Sampling = inference.Sampling{Temperature: 0.5, TopP: 0.9, MinP: 0.125, MaxTokens: 4, Stop: []string{"\n"},
		StopIDs: []int32{9}}
	for kind, path := range map[string]string{EasyRL: "/v1/completions", VLLM: "/v1/completions", SGLang: "/generate"} {
		f := newFake(t, kind)
		_, err := f.dial().Generate(t.Context(), req)
		require.NoError(t, err)
		body := f.bodies[path]
		top, repetition := -1.0, "repetition_penalty"
		switch kind {
		case SGLang:
			body = body["sampling_params"].(object)
			require.Equal(t, false, body["ignore_eos"], "SGLang would ignore stop_token_ids too")
			require.NotContains(t, body, "sampling_seed")
		default:
			require.Equal(t, true, body["ignore_eos"])
			require.Equal(t, true, body["return_token_ids"])
			require.Equal(t, 0.0, body["logprobs"])
			require.Equal(t, []any{9.0}, body["stop_token_ids"])
		}
		require.Equal(t, top, body["top_k"], kind)
		for name, value := range map[string]float64{
			"temperature": 0.5, "top_p": float64(float32(0.9)), "min_p": 0.125, repetition: 1, "presence_penalty": 0,
			"frequency_penalty": 0,
		} {
			require.InDelta(t, value, body[name], 1e-7, "%s %s", kind, name)
		}
		require.Equal(t, []any{"\n"}, body["stop"])
	}
}

func TestContextLimitsResponse(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		inst := newFake(t, kind).dial()
		req := request(1)
		req.PromptIDs = make([]int32, 126)
		out, err := inst.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, out[0].IDs, 2)
		req.PromptLogprobs, req.PromptTop = true, 1
		_, err = inst.Generate(t.Context(), req)
		require.ErrorIs(t, err, inference.ErrInvalid)
		req.PromptLogprobs, req.PromptTop = false, 0
		req.PromptIDs = make([]int32, 128)
		_, err = inst.Generate(t.Context(), req)
		require.ErrorIs(t, err, inference.ErrInvalid)
	}
}

func TestPromptAndTopLogprobs(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		req := request(2)
		req.PromptLogprobs, req.TopLogprobs = true, 2
		out, err := f.dial().Generate(t.Context(), req)
		require.NoError(t, err)
		for _, c := range out {
			require.Equal(t, []float32{0, f.promptLogprob(req.PromptIDs, 1), f.promptLogprob(req.PromptIDs, 2)},
				c.PromptLogprobs)
			require.Len(t, c.Top, 4)
			for i, at := range c.Top {
				require.Len(t, at, 2)
				require.GreaterOrEqual(t, at[0].Logprob, at[1].Logprob)
				if kind == SGLang {
					require.Equal(t, []inference.TokenLogprob{{ID: 8, Logprob: -0.25}, {ID: 7, Logprob: -0.5}}, at)
				} else if c.Logprobs[i] < -0.001 {
					require.Equal(t, inference.TokenLogprob{ID: 2001, Logprob: -0.001}, at[0])
				}
			}
		}
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, kind)
			inst := f.dial()
			for version := int64(1); version <= 3; version++ {
				w := fakeWeights{version, float32(version) / 4}
				sum, err := inst.Publish(t.Context(), w)
				require.NoError(t, err)
				require.Equal(t, w.Checksum(), sum)
				require.Equal(t, w.value, f.value)
				req := request(2)
				req.Version = version
				out, err := inst.Generate(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, version, out[1].Version)
				req.Version = version - 1
				if req.Version > 0 {
					_, err = inst.Generate(t.Context(), req)
					require.ErrorIs(t, err, inference.ErrStale)
				}
			}
			f.restart()
			req := request(1)
			req.Version = 3
			_, err := inst.Generate(t.Context(), req)
			require.ErrorIs(t, err, inference.ErrStale, "a new process with base weights")
		})
	}
	for _, kind := range []string{VLLM, SGLang} {
		inst := newFake(t, kind).dial(func(c *Config) { c.Store = nil })
		_, err := inst.Publish(t.Context(), fakeWeights{1, 1})
		require.ErrorContains(t, err, "reads weights from files; set a folder")
	}
}

func TestVLLMPublishes(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	inst := f.dial()
	f.calls = nil
	_, err := inst.Publish(t.Context(), fakeWeights{1, 1})
	require.NoError(t, err)
	require.Equal(t, []string{
		"/pause?mode=abort&clear_cache=true", "/collective_rpc", "/reset_prefix_cache", "/collective_rpc", "/resume",
	}, f.calls)
	require.False(t, f.paused)
	_, err = inst.Generate(t.Context(), request(1))
	require.NoError(t, err)
	require.Equal(t, publish.Label(fakeWeights{1, 1}), f.bodies["/v1/completions"]["cache_salt"])

	f.set(func() { f.without["/pause"], f.calls = true, nil })
	f.edit = func(path string, answer any) any {
		if path == "/reset_prefix_cache" {
			return ""
		}
		return answer
	}
	_, err = inst.Publish(t.Context(), fakeWeights{2, 2})
	require.NoError(t, err, "an older vLLM answers a reset with an empty body")
	require.Zero(t, f.called("/resume"), "an older vLLM is not paused")

	f.set(func() { f.without["/pause"], f.without["/collective_rpc"] = false, true })
	_, err = inst.Publish(t.Context(), fakeWeights{3, 3})
	require.ErrorContains(t, err, "Run vLLM with VLLM_SERVER_DEV_MODE=1")
	require.NotErrorIs(t, err, inference.ErrInvalid)
	require.False(t, f.paused, "resumed although the update failed")
	_, err = inst.Generate(t.Context(), request(1))
	require.ErrorIs(t, err, inference.ErrStale, "the served weights are unknown")
}

// vLLM refuses more than one greedy response, so the client requests one.
func TestVLLMGreedy(t *testing.T) {
	t.Parallel()
	f := newFake(t, VLLM)
	req := request(3)
	req.Sampling.Temperature = 0
	out, err := f.dial().Generate(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, out, 3)
	require.Equal(t, out[0], out[2])
	require.Equal(t, 1.0, f.bodies["/v1/completions"]["n"])
	out[0].IDs[0]++
	require.NotEqual(t, out[0].IDs, out[2].IDs, "draws are not shared")
}

// An update may answer 200, report success and the right label, and still do nothing.
func TestCanary(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{VLLM, SGLang} {
		f := newFake(t, kind)
		value := map[int64]float32{1: 0.5, 2: 0.51, 3: 0.52, 4: 0.52, 5: 5}
		var fault error
		canary := &publish.Canary{Prompt: []int32{3, 1, 4, 1, 5}}
		trainer := func(value float32) (out []float32) {
			for i := range canary.Prompt {
				out = append(out, (&fake{value: value}).promptLogprob(canary.Prompt, i)+0.0001*float32(i))
			}
			return out
		}
		canary.Logprobs = func(_ context.Context, version int64) (
			[]float32, error) {
			return trainer(value[version]), fault
		}
		freed := 0
		canary.Perturb = func(context.Context) (*publish.Perturbed, error) {
			return &publish.Perturbed{Weights: fakeWeights{0, 7}, Prompt: canary.Prompt, Logprobs: trainer(7),
				Free: func() { freed++ }}, nil
		}
		inst := f.dial(func(c *Config) { c.Canary = canary })
		publish := func(version int64) error {
			_, err := inst.Publish(t.Context(), fakeWeights{version, value[version]})
			return err
		}
		f.set(func() { f.old = true })
		require.ErrorContains(t, publish(1), "an update does not reach every tensor")
		require.ErrorContains(t, publish(1), map[string]string{VLLM: "Update the worker deploy/vllm/easyrl_worker.py",
			SGLang: "Try another version of SGLang"}[kind])
		f.set(func() { f.old = false })
		require.NoError(t, publish(1))
		require.Equal(t, 3, freed)
		require.NoError(t, publish(2))
		f.set(func() { f.old = true })
		require.ErrorContains(t, publish(3), "nearer to those of version 2")
		f.set(func() { f.old = false })
		require.NoError(t, publish(3))
		require.Equal(t, 4, freed, "a server that failed is verified with perturbed weights again")
		f.set(func() { f.old = true })
		require.NoError(t, publish(4), "the values did not change")
		require.ErrorContains(t, publish(5), "nearer to those of version")
		f.set(func() { f.old = false })
		fault = errors.New("device lost")
		require.ErrorContains(t, publish(4), "canary: trainer: device lost")
	}
}

// easyrl's checksum finds old weights behind a 200 without a canary.
func TestEasyrlChecksum(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		f := newFake(t, EasyRL)
		inst := f.dial(func(c *Config) {
			if local {
				c.URL = "http://127.0.0.1:8000"
			}
		})
		_, err := inst.Publish(t.Context(), fakeWeights{1, 1})
		require.NoError(t, err)
		require.Equal(t, local, strings.Contains(f.calls[len(f.calls)-1], "path="))
		f.set(func() { f.old = true })
		_, err = inst.Publish(t.Context(), fakeWeights{2, 2})
		require.ErrorContains(t, err, "server has version 1, expected 2")
		f.set(func() { f.version = 2 })
		_, err = inst.Publish(t.Context(), fakeWeights{2, 2})
		require.ErrorContains(t, err, "server has checksum")
	}
}

// A server on another machine behind a loopback port cannot read the file.
func TestEasyrlPathElsewhere(t *testing.T) {
	t.Parallel()
	f := newFake(t, EasyRL)
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.URL.Query().Has("path")
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	}
	_, err := f.dial(func(c *Config) { c.URL = "http://[::1]:8000/" }).Publish(t.Context(), fakeWeights{1, 1})
	require.NoError(t, err)
	require.Equal(t, 2, f.called("/v1/weights?"))
}

// Dial refuses a server whose model computes something else or whose context is too
// short.
func TestDialChecksModel(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{EasyRL, VLLM} {
		cfg := newFake(t, kind).config()
		cfg.Context = 129
		_, err := Dial(t.Context(), cfg)
		require.EqualError(t, err,
			"instance http://fake:8000: context has 128 positions, expected at least 129 for a prompt and its response")
		cfg.Context = 128
		inst, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, inst.Close())
	}
	f := newFake(t, EasyRL)
	cfg := f.config()
	cfg.Computes = "c2"
	_, err := Dial(t.Context(), cfg)
	require.ErrorContains(t, err, `config.json describes another model ("c1", expected "c2")`)
	inst := f.dial(func(c *Config) { c.Computes = "c1" })
	_, err = inst.Publish(t.Context(), fakeWeights{version: 1})
	require.NoError(t, err)
	f.set(func() { f.computes = "c2" })
	_, err = inst.Publish(t.Context(), fakeWeights{version: 2})
	require.ErrorContains(t, err, "config.json describes another model")
}

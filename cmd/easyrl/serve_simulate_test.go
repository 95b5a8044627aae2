package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/simulate"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// fast is a simulation that answers three tokens almost instantly.
const fast = "lengths=fixed:3,tokens_per_second=1e6,slots=4"

// checksumOf returns the checksum of a folder's weights, as a trainer computes it.
func checksumOf(t *testing.T, dir string) string {
	t.Helper()
	f, err := folder.Open(dir)
	require.NoError(t, err)
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	defer dev.Close() //nolint:errcheck // only a test
	w, err := f.Weights(dev)
	require.NoError(t, err)
	return w.Checksum()
}

// A simulated server behaves like any other: it samples from the start, takes weights from
// a body and from a file, and drains.
func TestServeSimulates(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	weights := initTiny(t, dir, "m", 1)
	root, said, stop := serveFolder(t, "-simulate", fast+",vocab=16,context=64")
	var models struct{ Data []struct{ ID string } }
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, root+"/v1/models", "", http.NoBody, &models))
	require.Equal(t, "simulated", models.Data[0].ID)
	a, code := askCompletions(t, root, "")
	require.Equal(t, http.StatusOK, code, a.Error)
	require.Zero(t, a.Version)
	require.Len(t, a.Choices, 3)
	for _, c := range a.Choices {
		require.Len(t, c.IDs, 3)
		require.Equal(t, []float32{simulate.Logprob, simulate.Logprob, simulate.Logprob}, c.Logprobs.Values)
		require.Empty(t, c.Text, "no tokenizer, no text")
	}
	again, _ := askCompletions(t, root, "")
	require.Equal(t, a.Choices, again.Choices)

	path, want := filepath.Join(weights, "model.safetensors"), checksumOf(t, weights)
	body, err := os.ReadFile(path)
	require.NoError(t, err)
	var put struct {
		Version  int64
		Checksum string
		Error    struct{ Message string }
	}
	require.Equal(t, http.StatusOK, ask(t, http.MethodPut, root+"/v1/weights?version=5", "", bytes.NewReader(body),
		&put), put.Error.Message)
	require.EqualValues(t, 5, put.Version)
	require.Equal(t, want, put.Checksum)
	require.Equal(t, http.StatusOK, ask(t, http.MethodPut, root+"/v1/weights?version=6&path="+path, "", http.NoBody,
		&put), put.Error.Message)
	require.Equal(t, want, put.Checksum)
	require.Equal(t, http.StatusBadRequest,
		ask(t, http.MethodPut, root+"/v1/weights?version=7", "", bytes.NewReader(body[:len(body)-4]), &put))
	require.Equal(t, http.StatusBadRequest,
		ask(t, http.MethodPut, root+"/v1/weights?version=7&path="+dir, "", http.NoBody, &put))
	require.Contains(t, put.Error.Message, "path is not a file with weights of this model")
	a, _ = askCompletions(t, root, `,"weight_version":6`)
	require.EqualValues(t, 6, a.Version)
	a, code = askCompletions(t, root, `,"weight_version":5`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "stale_weights", a.Error.Type)

	var drained struct{ Running int }
	require.Equal(t, http.StatusOK, ask(t, http.MethodPost, root+"/v1/drain", "", http.NoBody, &drained))
	_, code = askCompletions(t, root, "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, exitDone, stop(), said.String())
}

// With a model folder, the simulation has its tokenizer, sizes and name. The folder needs
// no weights.
func TestServeSimulatesModel(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	root, _, _ := serveFolder(t, "-model", dir, "-simulate", fast)
	var models struct {
		Data []struct {
			ID     string
			Length int `json:"max_model_len"`
		}
	}
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, root+"/v1/models", "", http.NoBody, &models))
	require.Equal(t, filepath.Base(dir), models.Data[0].ID)
	require.Equal(t, 64, models.Data[0].Length)
	a, code := askCompletions(t, root, `,"stop":["1"]`)
	require.Equal(t, http.StatusOK, code, a.Error)
	require.Len(t, a.Choices[0].IDs, 3, "the sampled length is kept")
	f, err := folder.Open(dir)
	require.NoError(t, err)
	a, code = askCompletions(t, root, "")
	require.Equal(t, http.StatusOK, code, a.Error)
	for _, c := range a.Choices {
		require.Equal(t, f.Tokenizer.Decode(c.IDs), c.Text)
		for _, id := range c.IDs {
			require.Less(t, id, int32(16))
		}
	}
	for _, stream := range []string{"false", "true"} {
		resp, err := http.Post(root+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":"1,2","max_tokens":3,"seed":7,"stream":`+stream+
				`}`)) //nolint:noctx // only a test
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
		require.Contains(t, string(text), `"finish_reason":"stop"`)
	}
}

// Sampling stops when the client leaves. The server reports its load meanwhile.
func TestServeSimulatedLoad(t *testing.T) {
	t.Parallel()
	root, said, stop := serveFolder(t, "-simulate", "lengths=fixed:1000000,tokens_per_second=1,slots=2,context=1048576")
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, root+"/v1/completions",
			strings.NewReader(`{"prompt":[3],"n":3,"max_tokens":1000000}`))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				err = resp.Body.Close()
			}
		}
		answered <- err
	}()
	require.Contains(t, untilMetrics(t, root, "vllm:num_requests_running", "2"),
		`vllm:num_requests_waiting{model_name="simulated",engine="0"} 1`)
	var load struct {
		Server int `json:"server_load"`
	}
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, root+"/load", "", http.NoBody, &load))
	require.Equal(t, 1, load.Server)
	leave()
	require.ErrorIs(t, <-answered, context.Canceled)
	untilMetrics(t, root, "vllm:num_requests_running", "0")
	require.Equal(t, exitDone, stop(), said.String())
}

// untilMetrics polls the metrics until name has a value and returns them.
func untilMetrics(t *testing.T, root, name, value string) string {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, root+"/metrics", http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if strings.Contains(string(text), name+`{model_name="simulated",engine="0"} `+value+"\n") {
			return string(text)
		}
	}
}

func TestServeSimulateRefuses(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"lengths=cauchy:1":     "expected lognormal:MEAN,SIGMA",
		"slots=0":              "slots 0, expected 1 to",
		"slots=many":           `slots "many", expected a number`,
		"slot=3":               `key "slot", expected lengths, tokens_per_second`,
		"tokens_per_second=-1": "tokens_per_second -1, expected 0.001 to",
		"32":                   `"32", expected key=value`,
		"slots=0,vocab=0":      "vocab 0, expected 1 to",
	} {
		code, out, errs := command(t, "serve", "-simulate", spec, "-listen", "127.0.0.1:0")
		require.Equal(t, exitUsage, code, errs)
		require.Contains(t, errs, "error: -simulate: ")
		require.Contains(t, errs, want)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
		require.Empty(t, out)
	}
}

// Simulated servers feed a whole run: it trains on all of their tokens, since the reward
// depends on the length, and the trainer's log-probabilities differ from the constant -1
// that the servers report.
func TestRunWithSimulatedServers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	const spec = "lengths=uniform:2,10,tokens_per_second=2000,slots=8,publish_seconds=0.01"
	first, _, _ := serveFolder(t, "-simulate", spec+",vocab=16,context=64")
	second, _, _ := serveFolder(t, "-simulate", spec, "-model", dir)
	run := trainTiny(t, dir, "run", "run.steps=3", "inference.kind=easyrl",
		fmt.Sprintf("inference.endpoints=[%q, %q]", first, second), "inference.min_instances=2",
		`reward={kind="overlong",buffer=12}`)
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 3)
	served := map[string]int{}
	for i, values := range steps {
		require.Equal(t, 2.0, values["fleet/size"])
		require.Zero(t, values["fleet/retries"])
		require.Equal(t, 6.0, values["groups/trained"])
		require.Less(t, values["reward/zero_std_frac"], 0.5)
		require.Greater(t, values["tokens/computed"], 100.0)
		require.Greater(t, values["mismatch/logprob_abs_max"], 1.0)
		text, err := os.ReadFile(filepath.Join(run, "rollouts", fmt.Sprintf("step-%06d.jsonl", i+1)))
		require.NoError(t, err)
		for line := range bytes.Lines(text) {
			var g rollout.Group
			require.NoError(t, json.Unmarshal(line, &g))
			for _, r := range g.Responses {
				require.EqualValues(t, simulate.Logprob, r.Spans[0].Logprobs[0])
				served[r.Instance]++
			}
		}
	}
	require.Len(t, served, 2)
	require.Equal(t, 3*6*4, served[first]+served[second])
}

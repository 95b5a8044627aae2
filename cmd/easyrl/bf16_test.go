package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/trainer"
)

// inBF16 is the setting of runs in BF16.
const inBF16 = "device.numerics=bf16"

// bf16Run writes a run file in a folder whose decoder tensor ranks can divide in BF16.
func bf16Run(t *testing.T) (dir string) {
	t.Helper()
	dir = meshRun(t, "qwen3")
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	write(t, dir, "config.json", strings.Replace(string(config), `"head_dim":10`, `"head_dim":16`, 1))
	return dir
}

// A run in BF16 ends in the same bits in any mode, on any mesh, after a resume and with servers. An audit confirms its
// steps, and its checkpoints say that they are of BF16.
func TestBF16EndsInSameBits(t *testing.T) {
	t.Parallel()
	dir := bf16Run(t)
	settings := []string{inBF16, "loss.beta=0.1", "train.minibatches=2", "checkpoint.keep=0"}
	want := trainTiny(t, dir, "one", settings...)
	float32s := trainTiny(t, dir, "float32", settings[1:]...)
	require.NotEqual(t, weightsHash(t, float32s, 5), weightsHash(t, want, 5))
	state, err := trainer.ReadState(filepath.Join(want, "checkpoints", "step-000005"))
	require.NoError(t, err)
	require.Equal(t, npu.BF16.Identity(), state.Arithmetic())
	requireAudits(t, want, 4)

	for _, mode := range []string{"sync", "colocated"} {
		run := trainTiny(t, dir, mode, append(settings, "run.mode="+mode, "inference.instances=2")...)
		require.Equal(t, weightsHash(t, want, 5), weightsHash(t, run, 5), mode)
	}
	for i, m := range []parallel.Mesh{{DP: 1, TP: 4, PP: 1}, {DP: 2, TP: 2, PP: 1}, {DP: 1, TP: 1, PP: 3}} {
		run := trainTiny(t, dir, m.String(), append(settings, meshWith(m, i))...)
		requireSameBits(t, want, run, 5)
	}
	part := trainTiny(t, dir, "part", append(settings, "run.steps=2")...)
	code, errs := resumeTiny(t, dir, part, settings...)
	require.Zero(t, code, errs)
	require.Equal(t, weightsHash(t, want, 5), weightsHash(t, part, 5))

	root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "other", 7), "-numerics", "bf16")
	served := trainTiny(t, dir, "served", append(settings, "inference.kind=easyrl",
		fmt.Sprintf("inference.endpoints=[%q]", root))...)
	require.Equal(t, weightsHash(t, want, 5), weightsHash(t, served, 5))
}

// The trainer recomputes the log-probabilities of sampled tokens bit for bit in BF16, and they are not those of FP32.
func TestBF16Logprobs(t *testing.T) {
	t.Parallel()
	dir := bf16Run(t)
	model := initTiny(t, dir, "model", 3)
	sampled := func(numerics string) (ids []int32, logprobs []float32) {
		code, out, errs := command(t, "generate", "-model", model, "-prompt-ids", "5,6,7", "-max-tokens", "20",
			"-ignore-eos", "-json", "-numerics", numerics)
		require.Zero(t, code, errs)
		var line struct {
			IDs      []int32
			Logprobs []float32
		}
		require.NoError(t, json.Unmarshal([]byte(out), &line))
		return line.IDs, line.Logprobs
	}
	ids, want := sampled("bf16")
	recomputed := func(numerics string) []float32 {
		text, err := json.Marshal(map[string][]int32{"ids": append([]int32{5, 6, 7}, ids...)})
		require.NoError(t, err)
		code, out, errs := command(t, "logprobs", "-model", model, "-data", write(t, dir, "ids.jsonl", string(text)),
			"-numerics", numerics)
		require.Zero(t, code, errs)
		var line struct{ Logprobs []float32 }
		require.NoError(t, json.Unmarshal([]byte(out), &line))
		return line.Logprobs[len(line.Logprobs)-len(ids):]
	}
	require.Equal(t, want, recomputed("bf16"))
	require.False(t, slices.Equal(want, recomputed("float32")))
}

// The record of an evaluation in BF16 does not continue in FP32.
func TestBF16Evaluation(t *testing.T) {
	t.Parallel()
	dir := bf16Run(t)
	args := []string{"eval", filepath.Join(dir, "run.toml"), "-model", initTiny(t, dir, "model", 3), "-out",
		filepath.Join(dir, "eval.jsonl"), "-data", filepath.Join(dir, "held", "prompts.jsonl"), "-json"}
	code, _, errs := command(t, append(slices.Clone(args), "-set", inBF16)...)
	require.Zero(t, code, errs)
	code, _, errs = command(t, args...)
	require.Equal(t, exitUsage, code, errs)
	require.Contains(t, errs, "device.numerics")
}

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu/far"
	"github.com/easyrl/easyrl/run/memory"
)

// swapping are the settings of a run that swaps.
func swapping(library string) []string {
	return []string{library, "run.mode=colocated", "train.swap=true"}
}

// With train.swap, a colocated run ends in the same weights, moments and metrics.
func TestSwapEndsInSameBits(t *testing.T) {
	if !alone(t) {
		return
	}
	library := fmt.Sprintf("device.kind=%q", far.Library(t))
	for name, c := range map[string]struct {
		dir      string
		settings []string
	}{
		"alone": {tinyRun(t), []string{"inference.instances=2"}},
		"reference": {tinyRun(t), []string{"loss.beta=0.1", "train.minibatches=2", "train.recompute=true",
			"eval.every=2"}},
		"previous":    {tinyRun(t), []string{`loss.old_policy="previous-step"`, "eval.every=1"}},
		"resampling":  {tinyRun(t), []string{"rollout.dynamic_sampling=2", "train.minibatches=3"}},
		"whole batch": {tinyRun(t), []string{"loss.kind=reinforce", "loss.advantage=batch"}},
		"tensor":      {meshRun(t, "qwen2"), []string{"parallel.tp=2", "loss.beta=0.1", "eval.every=2"}},
		"stages":      {meshRun(t, "llama"), []string{"parallel={dp=2,pp=2,zero=2}", "train.minibatches=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			plain := trainTiny(t, c.dir, "plain", append(c.settings, library, "run.mode=colocated")...)
			swapped := trainTiny(t, c.dir, "swapped", append(swapping(library), c.settings...)...)
			requireSameBits(t, plain, swapped, 5)
			// A resume from a checkpoint in between, which was captured while instances had the memory if
			// an evaluation preceded it.
			half := trainTiny(t, c.dir, "half", append(swapping(library), append(c.settings, "run.steps=2")...)...)
			args := []string{"train", filepath.Join(c.dir, "run.toml"), "-resume", "-set",
				fmt.Sprintf("run.dir=%q", half)}
			for _, s := range append(swapping(library), c.settings...) {
				args = append(args, "-set", s)
			}
			status, _, stderr := command(t, args...)
			require.Zero(t, status, stderr)
			require.Equal(t, checkpointHash(t, plain, 5), checkpointHash(t, half, 5))
		})
	}
}

// An upload that fails ends the run with one line. Its values are not lost: the run saves its last step,
// and a resume ends in the same bits.
func TestSwapFails(t *testing.T) {
	if !alone(t) {
		return
	}
	path := far.Library(t)
	library, dir := fmt.Sprintf("device.kind=%q", path), meshRun(t, "qwen2")
	want := trainTiny(t, dir, "whole", swapping(library)...)
	for name, c := range map[string]struct{ ranks, failure string }{
		"one":    {"parallel.tp=1", "error: step 3: swap in: second moment: upload optimizer: "},
		"tensor": {"parallel.tp=2", "error: step 3: swap in: rank "},
	} {
		settings := append(swapping(library), "checkpoint.every=0", c.ranks)
		packs := func(steps int, swap bool) int64 {
			far.Reset(path)
			trainTiny(t, dir, fmt.Sprint(name, steps, swap), append(settings, fmt.Sprint("run.steps=", steps),
				fmt.Sprint("train.swap=", swap))...)
			return far.Use(path).Packs
		}
		all := packs(2, true)
		step := all - packs(1, true) // of a swap and of publishing the next version
		publish := packs(2, false) - packs(1, false)
		far.Reset(path)
		far.Break(path, all+step-publish) // the last one of the third step's swap
		out := filepath.Join(dir, name)
		args := []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out)}
		for _, s := range settings {
			args = append(args, "-set", s)
		}
		status, _, stderr := command(t, args...)
		require.Equal(t, exitFailed, status, stderr)
		require.Contains(t, stderr, c.failure)
		require.Contains(t, stderr, "pack_matrix: ")
		require.Contains(t, stderr, "saved a checkpoint after step 2, -resume continues from it\n")
		require.Equal(t, 1, strings.Count(stderr, "pack_matrix"), stderr)
		far.Reset(path)
		status, _, stderr = command(t, append(args, "-resume")...)
		require.Zero(t, status, stderr)
		require.Equal(t, checkpointHash(t, want, 5), checkpointHash(t, out, 5), name)
	}
}

// The device's memory is that of the larger phase and of what stays, as predicted.
func TestSwapNeedsLessMemory(t *testing.T) {
	if !alone(t) {
		return
	}
	path := far.Library(t)
	library := fmt.Sprintf("device.kind=%q", path)
	for name, settings := range map[string][]string{
		"training is larger": {"loss.beta=0.1", "inference.max_running=4"},
		"sampling is larger": {"inference.max_running=200", "train.micro_batch_tokens=32"},
		"tensor":             {"inference.max_running=16", "parallel.tp=2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := meshRun(t, "qwen2")
			// Sizes are multiples of a panel.
			write(t, dir, "config.json",
				`{"model_type":"qwen2","hidden_size":64,"intermediate_size":160,"num_hidden_layers":3,`+
					`"num_attention_heads":4,
				"num_key_value_heads":2,"head_dim":32,"vocab_size":160,"max_position_embeddings":64,`+
					`"rms_norm_eps":1e-6,"rope_theta":10000,
				"hidden_act":"silu","tie_word_embeddings":false,"eos_token_id":1,"initializer_range":0.1}`)
			peak := func(run string, settings ...string) int64 {
				far.Reset(path)
				require.Zero(t, far.Use(path).Live, "no other test uses the library")
				trainTiny(t, dir, run, settings...)
				return far.Use(path).Peak
			}
			plain := peak("plain", append(settings, library, "run.mode=colocated", "eval.every=2")...)
			all := append(settings, append(swapping(library), "eval.every=2")...)
			swapped := peak("swapped", all...)
			args := []string{"check", filepath.Join(dir, "run.toml"), "-json"}
			for _, s := range append(all, fmt.Sprintf("run.dir=%q", filepath.Join(dir, "other"))) {
				args = append(args, "-set", s)
			}
			status, out, stderr := command(t, args...)
			require.Zero(t, status, stderr)
			var found struct{ Memory memory.Need }
			require.NoError(t, json.Unmarshal([]byte(out), &found))
			need := found.Memory.Swap
			require.NotNil(t, need)
			require.Equal(t, name == "sampling is larger", need.Sampling > need.Training)
			t.Logf("%d bytes at most without swap, %d with; predicted %+v", plain, swapped, need)
			require.LessOrEqual(t, swapped, need.Device)
			require.Greater(t, swapped, need.Device-(need.Training+need.Sampling)/8, "fewer rows than predicted")
			require.LessOrEqual(t, swapped+min(need.Training, need.Sampling)*3/4, plain)
		})
	}
}

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu/far"
)

// checkpointHash returns the hash of a step's weights and moments.
func checkpointHash(t *testing.T, runDir string, step int) string {
	t.Helper()
	h := sha256.New()
	for _, name := range []string{"model.safetensors", "trainer/optimizer.safetensors"} {
		b, err := os.ReadFile(filepath.Join(runDir, "checkpoints", fmt.Sprintf("step-%06d", step), name))
		require.NoError(t, err)
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// A device whose memory the host cannot read ends in the CPU's weights and moments, also with
// embedded instances, which share its memory.
func TestFarDeviceEndsInSameWeights(t *testing.T) {
	if !alone(t) {
		return
	}
	library := fmt.Sprintf("device.kind=%q", far.Library(t))
	dir := tinyRun(t)
	for name, settings := range map[string][]string{
		"embedded":   {"inference.instances=2", "eval.every=2"},
		"sync":       {"run.mode=sync"},
		"colocated":  {"run.mode=colocated"},
		"reference":  {"loss.beta=0.1", "train.minibatches=2", "train.recompute=true"},
		"previous":   {`loss.old_policy="previous-step"`},
		"resampling": {"rollout.dynamic_sampling=2"},
	} {
		cpu := trainTiny(t, dir, name+"-cpu", settings...)
		remote := trainTiny(t, dir, name+"-far", append(settings, library)...)
		require.Equal(t, checkpointHash(t, cpu, 5), checkpointHash(t, remote, 5), name)
		requireAudits(t, remote, 5)
	}
	t.Run("served", func(t *testing.T) {
		root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "served", 9), "-threads", "1", "-max-running", "5")
		cpu := trainTiny(t, dir, "served-cpu")
		remote := trainTiny(t, dir, "served-far", library, "inference.kind=easyrl",
			fmt.Sprintf("inference.endpoints=[%q]", root))
		require.Equal(t, checkpointHash(t, cpu, 5), checkpointHash(t, remote, 5))
	})
	t.Run("sft", func(t *testing.T) {
		demos := write(t, dir, "demos.jsonl", `{"prompt":"1,2","response":"3"}`+"\n"+
			`{"prompt":"4","response":"5,6"}`+"\n")
		var hashes []string
		for name, device := range map[string]string{"sft-cpu": "device.kind=cpu", "sft-far": library} {
			out := filepath.Join(dir, name)
			code, _, errs := command(t, "sft", filepath.Join(dir, "run.toml"), "-set", "sft.data="+demos, "-set",
				"sft.batch_size=2", "-set", "sft.steps=3",
				"-set", fmt.Sprintf("run.dir=%q", out), "-set", device)
			require.Zero(t, code, errs)
			hashes = append(hashes, checkpointHash(t, out, 3))
		}
		require.Equal(t, hashes[0], hashes[1])
	})
	t.Run("replay", func(t *testing.T) {
		run := trainTiny(t, dir, "recorded", "run.steps=2")
		args := []string{"replay", "-model", filepath.Join(run, "checkpoints", "step-000001"), "-rollouts",
			filepath.Join(run, "rollouts", "step-000002.jsonl")}
		var weights [2][]byte
		for i, device := range []string{"device.kind=cpu", library} {
			out := filepath.Join(dir, fmt.Sprint("replay-", i))
			code, _, errs := command(t, append(args, "-out", out, "-set", device)...)
			require.Zero(t, code, errs)
			var err error
			weights[i], err = os.ReadFile(filepath.Join(out, "model.safetensors"))
			require.NoError(t, err)
		}
		require.True(t, bytes.Equal(weights[0], weights[1]))
	})
	// Verbs that sample or score print the same.
	trained := filepath.Join(trainTiny(t, dir, "verbs", "run.steps=1"), "checkpoints", "step-000001")
	ids := write(t, dir, "ids.jsonl", `{"ids":[1,2,3]}`+"\n")
	for name, args := range map[string][]string{
		"generate": {"generate", "-model", trained, "-prompt-ids", "1,2,3", "-n", "3", "-max-tokens", "9",
			"-json", "-device"},
		"logprobs": {"logprobs", "-model", trained, "-data", ids, "-device"},
	} {
		t.Run(name, func(t *testing.T) {
			var outs []string
			for _, kind := range []string{"cpu", far.Library(t)} {
				code, out, errs := command(t, append(args, kind)...)
				require.Zero(t, code, errs)
				outs = append(outs, out)
			}
			require.NotEmpty(t, outs[0])
			require.Equal(t, outs[0], outs[1])
		})
	}
	t.Run("eval", func(t *testing.T) {
		var outs []string
		for _, device := range []string{"device.kind=cpu", library} {
			code, out, errs := command(t, "eval", filepath.Join(dir, "run.toml"), "-model", trained, "-set", device)
			require.Zero(t, code, errs)
			outs = append(outs, out)
		}
		require.Equal(t, outs[0], outs[1])
	})
	t.Run("serve", func(t *testing.T) {
		root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "served-by-far", 9), "-threads", "1", "-max-running",
			"5", "-device", far.Library(t))
		cpu := trainTiny(t, dir, "server-cpu")
		remote := trainTiny(t, dir, "server-far", "inference.kind=easyrl",
			fmt.Sprintf("inference.endpoints=[%q]", root))
		require.Equal(t, checkpointHash(t, cpu, 5), checkpointHash(t, remote, 5))
	})
	t.Run("check", func(t *testing.T) {
		code, out, errs := command(t, "check", filepath.Join(dir, "run.toml"), "-set", library)
		require.Zero(t, code, errs)
		require.Contains(t, out+errs, "far/")
	})
	t.Run("resume", func(t *testing.T) {
		cpu := trainTiny(t, dir, "resume-cpu")
		remote := trainTiny(t, dir, "resume-far", library, "run.steps=3")
		status, _, stderr := command(t, "train", filepath.Join(dir, "run.toml"), "-resume", "-set",
			fmt.Sprintf("run.dir=%q", remote), "-set", library)
		require.Zero(t, status, stderr)
		require.Equal(t, checkpointHash(t, cpu, 5), checkpointHash(t, remote, 5))
	})
}

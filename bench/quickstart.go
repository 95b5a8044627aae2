package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/easyrl/easyrl/report"
)

// ownKernels takes the place of a path of Python if easyrl's own kernels train.
const ownKernels = "-"

// quickstart times n steps of the quickstart's GRPO in bin/easyrl, after a first, untimed
// step. With one thread, trainer and instance share it. Unless python is ownKernels, a
// PyTorch rank trains in that Python.
func quickstart(python string, threads, n int, settings ...string) (outcome, error) {
	mode := "run.mode=periodic-async"
	if threads == 1 {
		mode = "run.mode=colocated"
	}
	settings = append(settings, fmt.Sprint("run.steps=", n+1), mode)
	if python != ownKernels {
		settings = append(settings, "train.backend=torch", "torch.python="+python)
	}
	lines, usage, err := train(threads, "configs/quickstart.toml", settings...)
	if err != nil {
		return outcome{}, err
	}
	var seconds []float64
	for _, v := range lines[1:] {
		seconds = append(seconds, v["timing_s/step"])
	}
	return outcome{Seconds: map[string][]float64{"": seconds}, PeakBytes: usage.Maxrss * 1024}, nil
}

// long times n steps of GRPO as quickstart does, with a model of 25 M parameters, prompts of
// 448 tokens and groups of 8 responses of 96 tokens. peers/trl_step.py does the same.
func long(python string, threads, n int) (outcome, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	model, data := filepath.Join(dir, "model"), filepath.Join(dir, "train.jsonl")
	if err := writeLong(dir, data, 2*(n+1)); err != nil {
		return outcome{}, err
	}
	if out, err := exec.Command("bin/easyrl", "init", "-config", filepath.Join(dir, "config.json"), "-out",
		model).CombinedOutput(); err != nil {
		return outcome{}, fmt.Errorf("init: %w: %s", err, lastLine(out))
	}
	return quickstart(python, threads, n, "model.path="+model, "data.train="+data, "data.eval=[]",
		"data.max_prompt_tokens=448", "rollout.prompts_per_step=2",
		"rollout.max_tokens=96", "reward.think=false", "reward.kind=regex",
		fmt.Sprintf("reward.pattern=^[%c-%c]", firstChar, firstChar+2047))
}

// firstChar is the character of token 2 in the tokenizer that writeLong writes. The characters of
// the following tokens follow it.
const firstChar = '一'

// writeLong writes to dir the config.json of a model with 25 M parameters and a tokenizer with a
// token for each of 4,094 characters, and to the file data n random prompts of 448 tokens.
func writeLong(dir, data string, n int) error {
	vocab := map[string]int{"<eos>": 0, "<pad>": 1}
	for i := range 4094 {
		vocab[string(firstChar+rune(i))] = i + 2
	}
	var rows bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 1))
	for range n {
		prompt := make([]rune, 448)
		for i := range prompt {
			prompt[i] = firstChar + rune(rng.IntN(4094))
		}
		fmt.Fprintf(&rows, "{\"prompt\": %q, \"answer\": \"\"}\n", string(prompt))
	}
	tokenizer, err := json.Marshal(map[string]any{
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"added_tokens": []map[string]any{{"id": 0, "content": "<eos>", "special": true},
			{"id": 1, "content": "<pad>", "special": true}},
	})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
		"num_attention_heads": 8, "num_key_value_heads": 4,
		"head_dim": 64, "vocab_size": 4096, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
		"tie_word_embeddings": true,
		"eos_token_id":        0,
	})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		filepath.Join(dir, "config.json"): config, filepath.Join(dir, "tokenizer.json"): tokenizer, data: rows.Bytes(),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// start measures the time from the start of easyrl train to the quickstart's first
// finished group, which comes after its first sampled token.
func start(n int) (outcome, error) {
	var seconds []float64
	for range n {
		began := float64(time.Now().UnixNano()) / 1e9
		lines, _, err := train(2, "configs/quickstart.toml", "run.steps=1")
		if err != nil {
			return outcome{}, err
		}
		v := lines[0]
		// the end of the step, less its duration, plus the parts that come before the end of the first group
		seconds = append(seconds, v["time"]-v["timing_s/step"]+v["timing_s/publish"]+v["timing_s/first_group"]-began)
	}
	return outcome{Seconds: map[string][]float64{"": seconds}}, nil
}

// train runs bin/easyrl train on the given number of cores, without evaluations and
// checkpoints. It returns the metrics of each step and the resources that the process used. A run
// without steps is an error.
func train(cores int, config string, settings ...string) ([]report.Values, *syscall.Rusage, error) {
	temporary, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // temporary
	dir := filepath.Join(temporary, "run")
	args := []string{"train", config}
	for _, s := range append([]string{fmt.Sprintf("run.dir=%q", dir), "eval.every=0", "checkpoint.every=0",
		"log.rollouts=false"}, settings...) {
		args = append(args, "-set", s)
	}
	cmd := exec.Command("bin/easyrl", args...)
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", cores))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %s", cmd, err, lastLine(stderr.Bytes()))
	}
	lines, err := report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("%s: no steps", cmd)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return lines, usage, err
}

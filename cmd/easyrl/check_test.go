package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A check prints every value with its origin, and what it found, for either task.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	demos := write(t, dir, "demos.jsonl", `{"prompt":"1","response":"2"}`+"\n")
	args := []string{"check", filepath.Join(dir, "run.toml"), "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set", "eval.k=4"}
	before := files(t, dir)
	status, out, stderr := command(t, args...)
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	require.Contains(t, out, "k = 4                                    # -set\n")
	require.Contains(t, out, "\n# data: 23 usable in data.train; held-out sets: prompts (23)\n")
	require.Contains(t, out, "\n# device: cpu/")
	require.Contains(t, out, "\n# ok: easyrl train can start\n")
	status, out, stderr = command(t, append(args, "-sft", "-static", "-set", "sft.data="+demos)...)
	require.Zero(t, status, stderr)
	require.Contains(t, out, "\n# data: 1 usable in sft.data\n")
	require.Contains(t, out, "\n# ok: easyrl sft can read its files.")
	require.NotContains(t, out, "# device")
	require.Equal(t, before, files(t, dir), "nothing is left behind")
}

// The JSON document has every value with its type and origin, and what the text has.
func TestCheckAsJSON(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	write(t, dir, "more.toml",
		"[reward.sources.\"prompts\"]\nkind = \"exact\"\n[eval]\nk = 3\n[rollout]\nstop = [\",,\"]\n")
	args := []string{"check", filepath.Join(dir, "run.toml"), filepath.Join(dir, "more.toml"), "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set", "train.lr=3"}
	var found struct {
		Task     string
		OK       bool
		Static   bool
		Error    string
		Warnings []string
		Config   map[string]map[string]any
		SetBy    map[string]string `json:"set_by"`
		Model    struct {
			Parameters int
			Random     bool
		}
		Data struct {
			Usable int
			Eval   []struct {
				Name   string
				Usable int
			}
		}
		Memory map[string]any
		Device map[string]any
		Folder map[string]any
	}
	status, out, stderr := command(t, append(args, "-json")...)
	require.Zero(t, status, stderr)
	require.NoError(t, json.Unmarshal([]byte(out), &found), out)
	require.Equal(t, "train", found.Task)
	require.True(t, found.OK)
	require.Empty(t, found.Error)
	require.Equal(t, []string{}, found.Warnings)
	require.EqualValues(t, 3, found.Config["train"]["lr"])
	require.EqualValues(t, 3, found.Config["eval"]["k"])
	require.Equal(t, []any{",,"}, found.Config["rollout"]["stop"])
	require.Equal(t, "exact", found.Config["reward"]["sources"].(map[string]any)["prompts"].(map[string]any)["kind"])
	require.Equal(t, "-set", found.SetBy["train.lr"])
	require.Equal(t, filepath.Join(dir, "more.toml")+":4", found.SetBy["eval.k"])
	require.Equal(t, "default", found.SetBy["train.warmup"])
	require.Len(t, found.SetBy, leaves(found.Config))
	require.Equal(t, 2*(32*64+32*32+3*32*48+2*32+2*8)+16*32+32, found.Model.Parameters)
	require.True(t, found.Model.Random)
	require.Equal(t, 23, found.Data.Usable)
	require.Equal(t, "prompts", found.Data.Eval[0].Name)
	require.EqualValues(t, 3*4*found.Model.Parameters, found.Memory["weights"])
	require.Positive(t, found.Memory["limit"].(map[string]any)["bytes"])
	require.Contains(t, found.Device["name"], "cpu/")
	require.EqualValues(t, 0, found.Folder["step"])
	_, text, _ := command(t, args...)
	for key := range found.SetBy {
		require.Contains(t, text, key[strings.LastIndexByte(key, '.')+1:]+" = ")
	}

	status, out, stderr = command(t, append(args, "-json", "-set", "data.eval=none")...)
	require.Equal(t, exitUsage, status)
	require.NoError(t, json.Unmarshal([]byte(out), &found), out)
	require.False(t, found.OK)
	require.Contains(t, stderr, found.Error)
}

// leaves counts the values of a tree.
func leaves[V any](tree map[string]V) (n int) {
	for _, v := range tree {
		switch v := any(v).(type) {
		case map[string]any:
			n += leaves(v)
		default:
			n++
		}
	}
	return n
}

// A check of -resume reads the checkpoint that the run would continue.
func TestCheckOfResume(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "loss.beta=0.1",
		"loss.old_policy=previous-step")
	args := []string{"check", filepath.Join(dir, "run.toml"), "-resume", "-set", fmt.Sprintf("run.dir=%q", run), "-set",
		"loss.beta=0.1", "-set", "loss.old_policy=previous-step"}
	before := files(t, dir)
	status, out, stderr := command(t, args...)
	require.Zero(t, status, stderr)
	require.Contains(t, out, "# folder: "+run+", resumes after step 2 from "+
		filepath.Join(run, "checkpoints", "step-000002")+"\n"+
		"# changed setting: run.steps 5 (was 2)\n")
	require.Equal(t, before, files(t, dir))
	corrupt(t, filepath.Join(run, "checkpoints", "step-000002", "model.safetensors"))
	for _, flag := range []string{"-static=false", "-static"} {
		status, out, stderr = command(t, append(args, flag)...)
		require.Zero(t, status, stderr)
		require.Contains(t, stderr, "skipped a checkpoint: ")
		require.Contains(t, out, ", resumes after step 1 from ")
	}
}

// Tied embeddings share one gradient. A gradient takes 8 bytes a value, and a weight 4 in each of
// 3 copies.
func TestCheckCountsTiedGradients(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for tied, weights := range map[bool]string{false: "weights 184.8 MiB, gradients 123.2 MiB",
		true: "weights 94.0 MiB, gradients 62.6 MiB"} {
		config := filepath.Join(dir, fmt.Sprint(tied, ".json"))
		require.NoError(t, os.WriteFile(config,
			fmt.Appendf(nil, `{"model_type":"llama","hidden_size":256,"intermediate_size":16,"num_hidden_layers":1,
			"num_attention_heads":1,"vocab_size":31000,"max_position_embeddings":64,"tie_word_embeddings":%v}`, tied),
			0o644))
		status, out, stderr := command(t, "check", filepath.Join(dir, "run.toml"), "-set", "model.path=", "-set",
			fmt.Sprintf("model.init.config=%q", config))
		require.Zero(t, status, stderr)
		require.Contains(t, out, weights)
	}
}

// The total is the sum of the parts, including each instance's cache.
func TestCheckCountsInstances(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	config := filepath.Join(dir, "big.json")
	require.NoError(t, os.WriteFile(config,
		[]byte(`{"model_type":"qwen2","hidden_size":512,"intermediate_size":1024,"num_hidden_layers":8,
		"num_attention_heads":8,"num_key_value_heads":8,"vocab_size":4000,"max_position_embeddings":4096,`+
			`"tie_word_embeddings":true}`), 0o644))
	mebibytes := func(instances int) (kv, activations, all float64) {
		status, out, stderr := command(t, "check", filepath.Join(dir, "run.toml"), "-set", "model.path=", "-set",
			fmt.Sprintf("model.init.config=%q", config),
			"-set", fmt.Sprint("inference.instances=", instances), "-set", "data.max_prompt_tokens=1000", "-set",
			"rollout.max_tokens=24",
			"-set", "inference.max_running=16")
		require.Zero(t, status, stderr)
		find := func(pattern string) float64 {
			m := regexp.MustCompile(pattern).FindStringSubmatch(out)
			require.NotNil(t, m, "%s in %s", pattern, out)
			v, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			if m[2] == "GiB" {
				v *= 1024
			}
			return v
		}
		return find(`instances? \(estimated\): kv ([0-9.]+) (.iB) \(1024 pages\)`),
			find(`instances? \(estimated\): .* activations up to ([0-9.]+) (.iB) \(1024 rows\)`),
			find(`memory in total \(estimated\): ([0-9.]+) (.iB)`)
	}
	kv, activations, one := mebibytes(1)
	require.InDelta(t, 2*8*1024*16*512*4/(1<<20), kv, 0.05,
		"keys and values of 8 layers, 1024 pages of 16 positions, 512 values of 4 bytes")
	require.Positive(t, activations)
	_, _, three := mebibytes(3)
	require.InDelta(t, 2*(kv+activations), three-one, 110, "shown to a tenth of a GiB")
}

// A check describes the ranks of a mesh. Of several processes only rank 0's describes anything.
func TestCheckOfMesh(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	args := []string{"check", filepath.Join(dir, "run.toml"), "-set",
		fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set", "parallel.dp=2", "-set", "parallel.pp=2"}
	status, out, stderr := command(t, args...)
	require.Zero(t, status, stderr)
	require.Contains(t, out, "\n# rank 3: dp 1, tp 0, pp 1; layers 1, ")
	require.Regexp(t, `# memory of rank 0's process \(estimated\): 4 ranks; 2 versions`, out)
	require.Regexp(t, `# threads: [0-9]+ for each of 4 ranks`, out)

	for name, value := range map[string]string{"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1",
		"MASTER_PORT": "9"} {
		t.Setenv(name, value)
	}
	for rank := range 2 {
		t.Setenv("RANK", strconv.Itoa(rank))
		status, _, stderr = command(t, args...)
		require.Equal(t, exitUsage, status)
		require.Contains(t, stderr, "parallel.token_file is not set")
		token := write(t, dir, "token", "a-token-of-tests-that-is-long")
		status, out, stderr = command(t, append(args, "-set", fmt.Sprintf("parallel.token_file=%q", token))...)
		require.Zero(t, status, stderr)
		require.Equal(t, rank == 0, out != "")
		status, _, stderr = command(t, append(args, "-set", "parallel.pp=1")...)
		require.Equal(t, exitUsage, status)
		require.Contains(t, stderr, "the launcher started 4 processes, but [parallel] sets 2 ranks (dp=2 tp=1 pp=1)")
	}
	require.NoDirExists(t, filepath.Join(dir, "out"))
}

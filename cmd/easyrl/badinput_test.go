package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files returns the checksums of all files below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			sums[path] = "folder"
			return err
		}
		b, err := os.ReadFile(path)
		sums[path] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	}))
	return sums
}

// requireOneLine requires that a mistake is reported in one line, followed at most by an
// indented excerpt, and without a stack trace.
func requireOneLine(t *testing.T, errs, want string) {
	t.Helper()
	var own []string
	for line := range strings.Lines(errs) {
		if !strings.HasPrefix(line, "  ") {
			own = append(own, line)
		}
	}
	require.Len(t, own, 1, errs)
	require.True(t, strings.HasPrefix(own[0], "error: "), errs)
	require.Contains(t, own[0], want)
	require.NotContains(t, errs, "goroutine ")
}

// copyDir copies a folder to dir/name.
func copyDir(t *testing.T, from, dir, name string) string {
	t.Helper()
	to := filepath.Join(dir, name)
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

// badRun is tinyRun with a model folder "m" and several faulty files.
func badRun(t *testing.T) string {
	t.Helper()
	dir := tinyRun(t)
	code, _, errs := command(t, "init", "-config", filepath.Join(dir, "config.json"), "-out", filepath.Join(dir, "m"))
	require.Zero(t, code, errs)
	write(t, dir, "empty", "")
	write(t, dir, "cut.jsonl", `{"prompt":"1","answer":"2"}`+"\n"+`{"prompt":`+"\n")
	write(t, dir, "blank.jsonl", `{"prompt":"1","answer":"2"}`+"\n"+`{"prompt":"","answer":"2"}`+"\n")
	write(t, dir, "null.jsonl", `{"prompt":"2","answer":null}`+"\n")
	write(t, dir, "blanks.jsonl", `{"prompt":"1","answer":""}`+"\n"+`{"prompt":"2","answer":[]}`+"\n")
	write(t, dir, "wronggold.jsonl", `{"prompt":"1","answer":"2"}`+"\n"+`{"prompt":"2","answer":"}"}`+"\n")
	write(t, dir, "nokey.jsonl", `{"prompt":"1"}`+"\n")
	write(t, dir, "wrong.toml", "[rollout]\ngroup_size = \"eight\"\n")
	write(t, dir, "no.toml", "[rollout\n")
	return dir
}

func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	before := files(t, dir)
	for _, test := range []struct {
		setting string // of train, or a whole command line that begins with a verb
		want    string
	}{
		{"rollout.grop_size=3", "-set: unknown key rollout.grop_size, did you mean rollout.group_size?"},
		{"rollout.group_size=x", `-set: rollout.group_size: expected a whole number, found "x"`},
		{"rollout.group_size=true", "-set: rollout.group_size: expected a whole number, found true"},
		{"rollout.group_size=1", "-set: rollout.group_size is 1, expected 2 or more"},
		{"rollout.group_size=100000", "-set: rollout.group_size is 100000, expected 65536 at most"},
		{"rollout.prompts_per_step=0", "-set: rollout.prompts_per_step is 0, expected 1 or more"},
		{"rollout.prompts_per_step=1000000000", "expected 1048576 at most"},
		{"rollout.temperature=0", "-set: rollout.temperature is 0, expected more than 0"},
		{"rollout.temperature=1e-30", "-set: rollout.temperature is 1e-30, expected 0.0001 to 10000"},
		{"rollout.max_tokens=0", "-set: rollout.max_tokens is 0, expected 1 or more"},
		{"rollout.max_tokens=64",
			"rollout.max_tokens is 64, expected 63 at most: the model's context is 64 tokens, prompt included"},
		{"rollout.max_tokens=-3", "-set: rollout.max_tokens is -3, expected 1 or more"},
		{"train.minibatches=4", "-set: train.minibatches is 4, expected a divisor of rollout.prompts_per_step = 6"},
		{"train.lr=-1", "-set: train.lr is -1, expected 0 or more"},
		{"run.steps=0", "-set: run.steps is 0, expected 1 or more"},
		{"inference.instances=100000", "-set: inference.instances is 100000, expected 1024 at most"},
		{"inference.threads=5000", "-set: inference.threads is 5000, expected 1024 at most"},
		{"device.threads=-1", "-set: device.threads is -1, expected 0 or more"},
		{"device.kind=cuda", `device.kind is "cuda", expected "cpu" or the path of a kernel library`},
		{"device.kind=./none.so", "open device library: stat ./none.so: no such file"},
		{"device.kind=" + in("run.toml"), "open device library " + in("run.toml")},
		{"parallel.tp=9", "[parallel] tp is 9, expected at most"},
		{"run.name=..", `-set: run.name is "..", expected a name without slashes`},
		{"run.dir=" + in("run.toml"), `run.toml" is a file, expected a folder`},
		{"run.dir=" + in("run.toml/below"), "not a directory"},
		{"run.dir=" + dir, "run.toml is a configuration file of this run and would be overwritten; set another " +
			"run.dir or rename the file"},
		{"model.init.config=" + in("none.json"), "read model configuration: open " + in("none.json") +
			": no such file"},
		{"data.train=" + in("none.jsonl"), "read prompts: open " + in("none.jsonl") + ": no such file"},
		{"data.train=" + dir, "is a folder, expected a regular file"},
		{"data.train=" + in("empty"), "empty: no prompts, expected at least one JSON object"},
		{"data.train=" + in("cut.jsonl"), "cut.jsonl:2: not a JSON object: unexpected end of JSON input"},
		{"data.train=" + in("blank.jsonl"), "prompt blank.jsonl:2 is empty"},
		{"data.train=" + in("null.jsonl"),
			`null.jsonl: none of 1 prompts has a reference answer, required by reward "prefix" (first null.jsonl:1)`},
		{"data.train=" + in("nokey.jsonl"),
			`nokey.jsonl: none of 1 prompts has a reference answer, required by reward "prefix" (first nokey.jsonl:1)`},
		{"train " + in("run.toml") + " -set reward.kind=math -set data.train=" + in("wronggold.jsonl"),
			`wronggold.jsonl: reward "math" finds 1 of 2 reference answers wrong, expected at most 1% (first ` +
				`wronggold.jsonl:2: no answer); ` +
				"correct or remove them, or set another reward.kind"},
		{"data.eval=" + in("none.jsonl"), "none.jsonl: no such file"},
		{"data.max_prompt_tokens=2", "prompts.jsonl: all 23 prompts are longer than 2 tokens"},
		{"data.max_prompt_tokens=0", "-set: data.max_prompt_tokens is 0, expected 1 or more"},
		{"reward={kind=\"prefix\",sources={nosuch={kind=\"exact\"}}}",
			`-set: reward.sources.nosuch: no prompt has this data source; prompts have "prompts"`},
		{"reward={kind=\"prefix\",tags=[\"think\"]}", `-set: reward.tags is set, but does not apply to kind "prefix"`},
		{"reward.kind=comand", `-set: reward.kind is "comand", expected one of "exact", "prefix", "math"`},
		{"reward={kind=\"command\",command=[\"/none/scorer\"]}", `"/none/scorer": stat /none/scorer: no such file`},
		{"control={listen=\"127.0.0.1:0\",token_file=\"" + in("none") + "\"}",
			"control.token_file: open " + in("none")},
		{"control.listen=127.0.0.1:99999", "control.listen: "},
		{"train " + in("none.toml"), "read configuration: open " + in("none.toml") + ": no such file"},
		{"train " + in("wrong.toml"),
			`wrong.toml:2: rollout.group_size: expected a whole number, found the string "eight"`},
		{"train " + in("no.toml"), "no.toml:1: "},
		{"train", "no configuration given, expected RUN.toml"},
		{"train " + in("run.toml") + " -set", "train: -set needs a value (see easyrl train -h)"},
		{"train " + in("run.toml") + " -set nonsense", `train: -set is "nonsense": expected section.key=value`},
		{"train " + in("run.toml") + " -resum", "train: unknown flag -resum, did you mean -resume?"},
		{"trian " + in("run.toml"), `unknown command "trian", did you mean train?`},
		{"sft " + in("run.toml"), "sft.data is not set, expected a file of demonstrations"},
		{"sft " + in("run.toml") + " -set sft.data=" + in("nokey.jsonl"), `nokey.jsonl:1: `},
		{"sft " + in("run.toml") + " -set sft.data=" + in("none") + " -set parallel.tp=9",
			"[parallel] tp is 9, expected at most"},
		{"report " + in("m"), "is not a run folder, expected one with metrics.jsonl"},
		{"report " + in("run.toml"), "is not a run folder, expected one with metrics.jsonl"},
	} {
		t.Run(strings.ReplaceAll(test.setting, dir, ""), func(t *testing.T) {
			args := strings.Fields(test.setting)
			if strings.Contains(args[0], "=") {
				args = []string{"train", in("run.toml"), "-set", fmt.Sprintf("run.dir=%q", in("out")), "-set",
					test.setting}
			}
			code, out, errs := command(t, args...)
			require.Equal(t, exitUsage, code, errs)
			require.Empty(t, out)
			requireOneLine(t, errs, test.want)
			require.Equal(t, before, files(t, dir), "nothing was started or changed")
		})
	}
}

// weightsFile is a parsed safetensors file.
type weightsFile struct {
	header map[string]any
	data   []byte
}

// editWeights changes a folder's model.safetensors.
func editWeights(t *testing.T, dir string, edit func(w *weightsFile)) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(b)
	w := weightsFile{data: b[8+n:]}
	require.NoError(t, json.Unmarshal(b[8:8+n], &w.header))
	edit(&w)
	header, err := json.Marshal(w.header)
	require.NoError(t, err)
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	require.NoError(t, os.WriteFile(path, append(append(out, header...), w.data...), 0o644))
}

func (w *weightsFile) tensor(name string) map[string]any { return w.header[name].(map[string]any) }

// badModels returns ways to corrupt a model folder. Each returns the expected error.
func badModels(dir string) map[string]func(t *testing.T, m string) (want string) {
	const embed, last = "model.embed_tokens.weight", "model.norm.weight"
	replace := func(name, old, replacement, want string) func(t *testing.T, m string) string {
		return func(t *testing.T, m string) string {
			b, err := os.ReadFile(filepath.Join(dir, "m", name))
			require.NoError(t, err)
			require.Contains(t, string(b), old)
			write(t, m, name, strings.Replace(string(b), old, replacement, 1))
			return want
		}
	}
	weights := func(want string, edit func(w *weightsFile)) func(t *testing.T, m string) string {
		return func(t *testing.T, m string) string { editWeights(t, m, edit); return want }
	}
	raw := func(want string, edit func(b []byte) []byte) func(t *testing.T, m string) string {
		return func(t *testing.T, m string) string {
			path := filepath.Join(m, "model.safetensors")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, edit(b), 0o644))
			return want
		}
	}
	return map[string]func(t *testing.T, m string) string{
		"missing folder": func(t *testing.T, m string) string {
			require.NoError(t, os.RemoveAll(m))
			return "read model folder: " + m + " does not exist"
		},
		"missing weights": func(t *testing.T, m string) string {
			require.NoError(t, os.Remove(filepath.Join(m, "model.safetensors")))
			return "not found: no model.safetensors or model.safetensors.index.json"
		},
		"truncated": raw("but the file has ", func(b []byte) []byte { return b[:len(b)/2] }),
		"five bytes": raw("5 bytes, expected at least 8 for the header's length",
			func(b []byte) []byte { return b[:5] }),
		"no bytes": raw("0 bytes, expected at least 8 for the header's length",
			func(b []byte) []byte { return nil }),
		"header of 2^60": raw("header is 1152921504606846976 bytes, expected at most 100000000",
			func(b []byte) []byte { binary.LittleEndian.PutUint64(b, 1<<60); return b }),
		"shape": weights(embed+" has shape [32 16], expected [16 32] from config.json", func(w *weightsFile) {
			w.tensor(embed)["shape"] = []int{32, 16}
		}),
		"type": weights(embed+`" of `, func(w *weightsFile) { w.tensor(embed)["dtype"] = "I32" }),
		"missing tensor": weights("tensor "+embed+" is missing", func(w *weightsFile) {
			w.header["other"] = w.header[embed]
			delete(w.header, embed)
		}),
		"NaN": weights("tensor "+last+": value 3 is NaN: not finite", func(w *weightsFile) {
			at := int(w.tensor(last)["data_offsets"].([]any)[0].(float64)) + 4*3
			binary.LittleEndian.PutUint32(w.data[at:], math.Float32bits(float32(math.NaN())))
		}),
		"more ids than rows": func(t *testing.T, m string) string {
			write(t, m, "tokenizer_config.json", `{"char_ords":[48,49,50,51,52,53,54,55,56,57,44,58,60]}`)
			return "the tokenizer has 17 ids, but the embedding has 16 rows"
		},
		"tokenizer cut": func(t *testing.T, m string) string {
			write(t, m, "tokenizer_config.json", `{"char_ords":[48,`)
			return "tokenizer_config.json: unexpected end of JSON input"
		},
		"hidden size of 2^40": replace("config.json", `"hidden_size": 32`, `"hidden_size": 1099511627776`,
			"m/config.json: hidden_size is 1099511627776, expected 1 to 16777216"),
		"hidden size of 2^20": replace("config.json", `"hidden_size": 32`, `"hidden_size": 1048576`,
			"has shape [16 32], expected [16 1048576] from config.json"),
		"layers of 2^24": replace("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 16777216`,
			"m/config.json: num_hidden_layers is 16777216, expected 1 to 4096"),
		"not a number": replace("config.json", `"hidden_size": 32`, `"hidden_size": "32"`,
			"m/config.json: hidden_size is a JSON string, expected a whole number"),
		"another kind": replace("config.json", `"qwen3"`, `"gpt2"`, `m/config.json: model_type is "gpt2", expected `),
		"eos": replace("config.json", `"eos_token_id": 1`, `"eos_token_id": 99`,
			"m/config.json: eos_token_id 99 is outside the vocabulary of 16"),
		"config cut": func(t *testing.T, m string) string {
			write(t, m, "config.json", "{\n\"a")
			return "m/config.json: line 2: not JSON"
		},
		"generation eos": func(t *testing.T, m string) string {
			write(t, m, "generation_config.json", `{"eos_token_id":[99]}`)
			return "m/generation_config.json: eos_token_id 99 is outside the vocabulary of 16"
		},
	}
}

// Every verb that reads a model folder rejects an unusable one.
func TestBadModels(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	run := trainTiny(t, dir, "run", "run.steps=1")
	groups := filepath.Join(run, "rollouts", "step-000001.jsonl")
	prompts := filepath.Join(dir, "prompts.jsonl")
	for name, spoil := range badModels(dir) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			m := copyDir(t, filepath.Join(dir, "m"), work, "m")
			want := spoil(t, m)
			before := files(t, work)
			out := filepath.Join(work, "out")
			for _, args := range [][]string{
				{"logprobs", "-model", m},
				{"generate", "-model", m, "-prompt-ids", "3"},
				{"eval", "-model", m, "-data", prompts, "-reward", "prefix"},
				{"replay", "-model", m, "-rollouts", groups, "-out", out},
				{"train", filepath.Join(dir, "run.toml"), "-set", "model.init.config=", "-set", "model.path=" + m,
					"-set", fmt.Sprintf("run.dir=%q", out)},
			} {
				code, stdout, errs := command(t, args...)
				require.Equal(t, exitUsage, code, "%v: %s", args, errs)
				require.Empty(t, stdout)
				requireOneLine(t, errs, want)
				require.Equal(t, args[0] == "train" || args[0] == "eval",
					strings.HasPrefix(errs, "error: model.path: "), "%v: %s", args, errs)
				require.Equal(t, before, files(t, work), args)
			}
		})
	}
}

func TestBadModelsToInit(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	config := filepath.Join(dir, "config.json")
	huge := write(t, dir, "huge.json",
		`{"model_type":"qwen3","hidden_size":16777216,"intermediate_size":16777216,"num_hidden_layers":4096,
		"num_attention_heads":16777216,"head_dim":16777216,"vocab_size":262144,"max_position_embeddings":64}`)
	before := files(t, dir)
	for _, test := range []struct{ config, out, want string }{
		{filepath.Join(dir, "none"), "new", "no such file"},
		{huge, "new", huge + ": the sizes give 3.87e+25 parameters, expected at most 2.2e+12"},
		{config, "m", "m is not empty, expected a new folder"},
		{config, "empty", "empty cannot be read as a folder"},
		{config, "empty/below", "below cannot be read as a folder"},
		{dir, "new", "is a folder, expected a regular file"},
	} {
		code, _, errs := command(t, "init", "-config", test.config, "-out", filepath.Join(dir, test.out))
		require.Equal(t, exitUsage, code, errs)
		requireOneLine(t, errs, test.want)
		require.Equal(t, before, files(t, dir))
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	m, prompts := filepath.Join(dir, "m"), filepath.Join(dir, "prompts.jsonl")
	bare := copyDir(t, m, dir, "bare")
	require.NoError(t, os.Remove(filepath.Join(bare, "tokenizer_config.json")))
	eval := func(args ...string) []string {
		return append([]string{"eval", "-model", m, "-data", prompts, "-reward", "prefix", "-max-tokens", "3"}, args...)
	}
	generate := func(args ...string) []string {
		return append([]string{"generate", "-model", m, "-max-tokens", "3"}, args...)
	}
	before := files(t, dir)
	for _, test := range []struct {
		args []string
		want string
	}{
		{generate(), "expected -model DIR and one of -prompt and -prompt-ids"},
		{generate("-prompt", ""), "expected -model DIR and one of -prompt and -prompt-ids"},
		{generate("-prompt-ids", "1,x"), `generate: prompt id is "x", expected 0 to 15`},
		{generate("-prompt-ids", "1,,2"), `generate: prompt id is "", expected 0 to 15`},
		{generate("-prompt-ids", "16"), `generate: prompt id is "16", expected 0 to 15`},
		{generate("-prompt-ids", "-1"), `generate: prompt id is "-1", expected 0 to 15`},
		{generate("-prompt-ids", "99999999999"), `generate: prompt id is "99999999999", expected 0 to 15`},
		{generate("-prompt", strings.Repeat("1", 100)), "prompt of 101 tokens, expected fewer than the context of 64"},
		{generate("-prompt", "1", "-n", "0"), "0 responses, expected 1 to 65536"},
		{generate("-prompt", "1", "-temperature", "-1"), "temperature is -1, expected 0, or 0.0001 to 10000"},
		{generate("-prompt", "1", "-temperature", "1e-40"), "temperature is 1e-40, expected 0, or 0.0001 to 10000"},
		{generate("-prompt", "1", "-top-p", "2", "-top-k", "-1"),
			"top-p 2, expected more than 0 and at most 1; top-k -1, expected 0 or more"},
		{generate("-prompt", "1", "-threads", "-1"), "-1 threads, expected 0 (all cores) to 1024"},
		{generate("-prompt", "1", "-n", "x"), `generate: -n is "x", expected a whole number`},
		{[]string{"generate", "-model", bare, "-prompt", "1"},
			"has no tokenizer files; pass the prompt as -prompt-ids"},
		{[]string{"generate", "-model", bare, "-prompt-ids", "1", "-stop", "2"}, "stop strings need a tokenizer"},
		{[]string{"eval", "-model", bare, "-data", prompts}, "has no tokenizer files, required for prompts"},
		{eval("-k", "0"), "eval.k is 0, expected 1 or more"},
		{eval("-k", "100000"), "eval.k is 100000, expected 65536 at most"},
		{eval("-max-tokens", "0"), "rollout.max_tokens is 0, expected 1 or more"},
		{eval("-temperature", "nan"), "eval.temperature is NaN, expected 0, or 0.0001 to 10000"},
		{eval("-set", "eval.top_p=0"), "-set: eval.top_p is 0, expected more than 0 and at most 1"},
		{eval("-prompts", "-1"), "eval.prompts is -1, expected 0 or more"},
		{eval("-answer-key", "solution"), `prompts.jsonl:1: answer: no key "solution", found "answer", "prompt"`},
		{eval("-reward", "bogus"), `kind is "bogus", expected one of "exact", "prefix", "math"`},
		{eval("-threads", "2000"), "inference.threads is 2000, expected 1024 at most"},
		{eval("-data", filepath.Join(dir, "null.jsonl")),
			"none of 1 prompts has a reference answer, required by reward \"prefix\" (first null.jsonl:1)"},
		{eval("-data", filepath.Join(dir, "empty")), "no prompts, expected at least one JSON object"},
		{eval("-data", prompts), "prompts.jsonl: named twice"},
		{eval("-data", filepath.Join(dir, "none*")), "none*: no file matches"},
		{[]string{"eval", "-model", m, "-data", prompts, "-set", "reward.sources.other.kind=exact"},
			`has data source "prompts", which has no reward`},
		{eval("-set", "reward.sources.other.kind=exact", "-reward", "exact"),
			`-set: reward.sources.other: no prompt has this data source; prompts have "prompts"`},
		{eval("-reward", "math", "-set", "reward.buffer=1"),
			`-set: reward.buffer is set, but does not apply to kind "math"`},
		{eval("-reward", "math", "-data", filepath.Join(dir, "blanks.jsonl")),
			"none of 2 prompts has a reference answer, required by reward \"math\" (first blanks.jsonl:1)"},
		{eval("-out", prompts), "line 1 does not hold an evaluation's settings"},
		{eval("-out", dir), "is a folder, expected a regular file"},
		{eval("more"), "open more: no such file"},
		{[]string{"eval", "-model", m},
			"eval: expected -model DIR and -data FILE, or a RUN.toml with model.path and data.eval"},
		{[]string{"logprobs"}, "logprobs: expected -model DIR and no other argument"},
		{[]string{"logprobs", "-model", m, "-temperature", "0"},
			"logprobs: -temperature is 0, expected 0.0001 to 10000"},
		{[]string{"logprobs", "-model", m, "-data", filepath.Join(dir, "none")}, "none: no such file"},
		{[]string{"logprobs", "-model", m, "-data", dir}, "is a folder, expected a regular file"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(test.args, " "), dir, ""), func(t *testing.T) {
			code, out, errs := command(t, test.args...)
			require.Equal(t, exitUsage, code, errs)
			require.Empty(t, out)
			requireOneLine(t, errs, test.want)
			require.Equal(t, before, files(t, dir))
		})
	}
}

func TestBadLinesToLogprobs(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	const good = `{"ids":[1,2]}` + "\n"
	for line, want := range map[string]string{
		`{"ids":[1,`:             "not JSON: unexpected end of JSON input, expected ",
		`garbage`:                "not JSON: invalid character 'g'",
		`{}`:                     `missing "ids", expected {"ids":[…]}`,
		`null`:                   `missing "ids", expected {"ids":[…]}`,
		`{"idz":[1,2]}`:          `missing "ids", expected {"ids":[…]}`,
		`[1,2]`:                  "found a JSON array, expected ",
		`{"ids":"a"}`:            "ids: found a JSON string, expected ",
		`{"ids":[1.5]}`:          "ids: found a JSON number 1.5, expected ",
		`{"ids":[1,null]}`:       "ids[1] is null, expected 0 to 15",
		`{"ids":[1,16]}`:         "ids[1] is 16, expected 0 to 15",
		`{"ids":[-1]}`:           "ids[0] is -1, expected 0 to 15",
		`{"ids":[4294967297,1]}`: "ids: found a JSON number 4294967297, expected ",
		`{"ids":[1` + strings.Repeat(",1", 64) + `]}`: "got 65 tokens, expected 64 at most, the model's context",
		good[:len(good)-1] + good[:len(good)-1]:       "not JSON: invalid character '{' after top-level value",
	} {
		var out, errs bytes.Buffer
		require.Equal(t, exitUsage, runWith(&out, &errs, good+"\n"+line+"\n"+good, "logprobs", "-model",
			filepath.Join(dir, "m")), line)
		requireOneLine(t, errs.String(), "standard input:3: "+want)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "lines before the invalid one are answered")
	}
	long := write(t, dir, "long.jsonl", good+strings.Repeat(" ", (64<<20)+1))
	code, _, errs := command(t, "logprobs", "-model", filepath.Join(dir, "m"), "-data", long)
	require.Equal(t, exitUsage, code)
	requireOneLine(t, errs, "long.jsonl:2: line is longer than 64.0 MiB")
}

// Package trainer tests faults in a file of groups. This test covers how replay reports
// them and its other arguments.
func TestBadReplays(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	run := trainTiny(t, dir, "run", "run.steps=2", "checkpoint.keep=0", "loss.beta=0.1")
	from, groups := filepath.Join(run, "checkpoints", "step-000001"),
		filepath.Join(run, "rollouts", "step-000002.jsonl")
	initTiny(t, dir, "seven", 7)
	b, err := os.ReadFile(groups)
	require.NoError(t, err)
	mixed := write(t, dir, "mixed.jsonl", string(b)+strings.ReplaceAll(string(b), `"version":2`, `"version":3`))
	outside := write(t, dir, "outside.jsonl", strings.Replace(string(b), `"ids":[`, `"ids":[99,`, 1))
	lacks := copyDir(t, from, dir, "lacks")
	require.NoError(t, os.Remove(filepath.Join(lacks, "trainer", optimizerFile)))
	odd := copyDir(t, from, dir, "odd")
	write(t, filepath.Join(odd, "trainer"), "state.json", `{"step":-4}`)
	copied := copyDir(t, filepath.Dir(groups), dir, "copied")
	others := t.TempDir()
	// folder makes the folder of a run whose run.toml differs.
	text, err := os.ReadFile(filepath.Join(run, "run.toml"))
	require.NoError(t, err)
	folder := func(name, old, changed string) string {
		require.Contains(t, string(text), old)
		require.NoError(t, os.Mkdir(filepath.Join(others, name), 0o755))
		return filepath.Dir(write(t, filepath.Join(others, name), "run.toml",
			strings.Replace(string(text), old, changed, 1)))
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "wide"), 0o755))
	larger := strings.Replace(string(config), `"hidden_size":32`, `"hidden_size":40`, 1)
	wide := write(t, filepath.Join(dir, "wide"), "config.json", larger)
	seven := filepath.Join(dir, "seven")
	init := func(name string) string { return fmt.Sprintf("config = %q", name) }
	start := init(filepath.Join(dir, "config.json"))
	before := files(t, dir)
	for _, test := range []struct {
		args []string // after -model, -rollouts and -out, which they may override
		want string
	}{
		{[]string{"-rollouts", filepath.Join(dir, "none")}, "read groups: open "},
		{[]string{"-rollouts", filepath.Join(dir, "empty")}, "empty has no groups, expected one per line"},
		{[]string{"-rollouts", filepath.Join(dir, "cut.jsonl")}, "cut.jsonl:1: 0 prompt_ids and 0 responses"},
		{[]string{"-rollouts", mixed},
			"mixed.jsonl:7: step 2 and version 3, expected step 2 and version 2 as on line 1"},
		{[]string{"-rollouts", outside}, "outside.jsonl:1: response 0: "},
		{[]string{"-out", run}, "is not empty, expected a new folder"},
		{[]string{"-out", filepath.Join(dir, "empty")}, "empty cannot be read as a folder"},
		{[]string{"-out", filepath.Join(dir, "empty", "below")}, "below cannot be read as a folder"},
		{[]string{"-model", lacks}, "resume: open weights "},
		{[]string{"-model", odd}, "state.json: step -4"},
		{[]string{"-set", "train.lr=-1"}, "-set: train.lr is -1, expected 0 or more"},
		{[]string{"-set", "train.minibatches=0"}, "-set: train.minibatches is 0, expected 1 or more"},
		{[]string{"-set", "train.minibatches=7"}, "train.minibatches is 7, expected 6 at most"},
		{[]string{"-set", "loss.kl=k9"}, `-set: loss.kl is "k9"`},
		{[]string{"-set", "rollout.temperature=0"}, "-set: rollout.temperature is 0, expected more than 0"},
		{[]string{"-set", "rollout.max_tokens=11"},
			"-set: rollout.max_tokens is 11, expected 12 or more as in " + groups},
		{[]string{"-set", "rollout.group_sise=4"}, "-set: unknown key rollout.group_sise"},
		{[]string{"-set", "run.steps=1", "-set", "train.schedule=linear"},
			"-set: run.steps is 1, expected at least 2, the step to take"},
		{[]string{"-rollouts", filepath.Join(copied, "step-000002.jsonl")},
			"the settings of the step are unknown: " + copied},
		{[]string{"-run", dir + "/none"}, "-run " + dir + "/none has no run.toml, expected the folder of a run"},
		{[]string{"-run", from}, "-run " + from + " has no run.toml, expected the folder of a run"},
		{[]string{"-run", groups}, "read the settings of the run in " + groups},
		{[]string{"-run", folder("broken", "[loss]", "[loss")}, filepath.Join(others, "broken", "run.toml") + ":"},
		{[]string{"-run", folder("unknown", "[loss]\n", "[loss]\nkinds = 3\n")}, ": unknown key loss.kinds"},
		{[]string{"-run", folder("sft", string(text), "[sft]\ndata = 'a'\n")},
			"run.toml is of easyrl sft, expected the settings of easyrl train"},
		{[]string{"-run", folder("sizes", "group_size = 4", "group_size = 8")},
			": rollout.group_size is 8, expected 4 as in " + groups},
		{[]string{"-run", folder("prompts", "prompts_per_step = 6", "prompts_per_step = 8")},
			": rollout.prompts_per_step is 8, expected 6 as in " + groups},
		{[]string{"-run", folder("lengths", "max_tokens = 12", "max_tokens = 8")},
			": rollout.max_tokens is 8, expected 12 or more as in " + groups},
		{[]string{"-run", folder("seed", "seed = 1", "seed = 2")}, ": run.seed is 2, expected 1 as in " + from},
		{[]string{"-run", folder("gone", start, init(filepath.Join(dir, "gone.json")))},
			"loss.beta is 0.1, so the step needs the model that the run started from; " +
				"add -reference DIR, or start replay where the run was started: read model configuration: open "},
		{[]string{"-run", folder("shape", start, init(wide))},
			"config.json describes another model than that in " + from},
		{[]string{"-run", folder("weights", start, fmt.Sprintf("config = %q\n[model]\npath = %q", "", seven))},
			seven + " of " + filepath.Join(others, "weights", "run.toml") +
				" is not the model that the run of " + from +
				" started from: its weights differ"},
		{[]string{"-reference", seven}, "-reference " + seven + " is not the model that the run of "},
		{[]string{"-reference", filepath.Join(dir, "none")}, "-reference: "},
		{[]string{"-reference", seven, "-set", "loss.beta=0"}, "-reference is set but loss.beta is 0"},
		{[]string{"-set", "loss.correction=mask", "-set", "loss.old_policy=previous-step", "-set",
			"train.minibatches=2"},
			"loss.correction is \"mask\""},
		{[]string{"-set", "parallel.tp=2"}, "[parallel] tp is 2, expected at most 1"},
		{[]string{"-model", filepath.Join(dir, "m"), "-reference", seven, "-set", "parallel.dp=2"},
			"m is no checkpoint and [parallel] sets dp=2 tp=1 pp=1, expected one rank"},
	} {
		args := append([]string{"replay", "-model", from, "-rollouts", groups, "-out", filepath.Join(dir, "out")},
			test.args...)
		code, _, errs := command(t, args...)
		require.Equal(t, exitUsage, code, errs)
		requireOneLine(t, errs, test.want)
		require.Equal(t, before, files(t, dir), test.args)
	}
	code, _, errs := command(t, "replay", "-model", from, "-rollouts", groups, "-out", filepath.Join(dir, "out"),
		"-set", "train.lr=1e30")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "\nerror: step 2: after an update at lr 1e+30: weights of ")
	require.Equal(t, before, files(t, dir))
}

// optimizerFile is the name of the moments in a checkpoint's trainer folder.
const optimizerFile = "optimizer.safetensors"

// Prompts that are too long are dropped and counted.
func TestLongPromptsAreDropped(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	path := filepath.Join(dir, "prompts.jsonl")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	write(t, dir, "prompts.jsonl", string(b)+`{"prompt":"`+strings.Repeat("1", 70)+`","answer":"1"}`+"\n")
	for setting, want := range map[string]string{
		"data.max_prompt_tokens=16":  "dropped 1 of 24 prompts longer than 16 tokens (first prompts.jsonl:24)\n",
		"data.max_prompt_tokens=999": "dropped 1 of 24 prompts longer than 63 tokens (first prompts.jsonl:24)\n",
	} {
		code, _, errs := command(t, "train", filepath.Join(dir, "run.toml"), "-set", "run.steps=1", "-set", setting,
			"-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, strings.ReplaceAll(setting, ".", "-"))))
		require.Zero(t, code, errs)
		require.Contains(t, errs, want)
	}
}

package configs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/foreign"
)

// write writes documents to files a.toml, b.toml, … in a new folder.
func write(t *testing.T, documents ...string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for i, document := range documents {
		path := filepath.Join(dir, string(rune('a'+i))+".toml")
		require.NoError(t, os.WriteFile(path, []byte(document), 0o644))
		files = append(files, path)
	}
	return files
}

const small = `[model]
path = "m"
[data]
train = "t.jsonl"
`

func TestLayersAndOrigins(t *testing.T) {
	t.Parallel()
	files := write(t, small+"[rollout]\ngroup_size = 4\ntop_k = 5\nstop = [\"a\", \"b\"]\n",
		"rollout.group_size = 16\nrollout.stop = \"c\"\n[train]\nlr = 1\n")
	r, err := Load(files, []string{"train.lr=2.5e-4", "run.name = bare", "loss.kl=\"k2\"", "data.eval=[\"x\",\"y\"]",
		"rollout.top_p=1"})
	require.NoError(t, err)
	require.Equal(t, 16, r.Rollout.GroupSize)
	require.Equal(t, 5, r.Rollout.TopK)
	require.Equal(t, []string{"c"}, r.Rollout.Stop)
	require.InDelta(t, 2.5e-4, r.Train.LR, 0)
	require.Equal(t, "bare", r.Run.Name)
	require.Equal(t, "k2", r.Loss.KL)
	require.Equal(t, []string{"x", "y"}, r.Data.Eval)
	require.Equal(t, filepath.Join("runs", "bare"), r.Run.Dir)
	for key, want := range map[string]string{
		"rollout.group_size": files[1] + ":1", "rollout.top_k": files[0] + ":7", "train.lr": "-set",
		"model.path": files[0] + ":2",
		"run.steps":  "default", "run.dir": "default",
	} {
		require.Equal(t, want, r.Origin(key).String(), key)
	}
	require.NoError(t, r.Validate(TrainTask))
}

func TestNameComesFromTheFirstFile(t *testing.T) {
	t.Parallel()
	r, err := Load(write(t, small, "[run]\nsteps = 3"), nil)
	require.NoError(t, err)
	require.Equal(t, "a", r.Run.Name)
	require.Equal(t, filepath.Join("runs", "a"), r.Run.Dir)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		setting string
		get     func(*Resolved) any
		want    any
	}{
		{"run.steps=7", func(r *Resolved) any { return r.Run.Steps }, 7},
		{"run.steps=1_000", func(r *Resolved) any { return r.Run.Steps }, 1000},
		{"run.name=7", func(r *Resolved) any { return r.Run.Name }, "7"},
		{"run.name='quo ted'", func(r *Resolved) any { return r.Run.Name }, "quo ted"},
		{"model.path=a/b=c d", func(r *Resolved) any { return r.Model.Path }, "a/b=c d"},
		{"model.path=", func(r *Resolved) any { return r.Model.Path }, ""},
		{"model.path=true", func(r *Resolved) any { return r.Model.Path }, "true"},
		{"data.eval=some/file.jsonl", func(r *Resolved) any { return r.Data.Eval }, []string{"some/file.jsonl"}},
		{"data.shuffle=false", func(r *Resolved) any { return r.Data.Shuffle }, false},
		{"loss.aggregation=sequence-mean", func(r *Resolved) any { return string(r.Loss.Aggregation) },
			"sequence-mean"},
		{"model.init={config='c'}", func(r *Resolved) any { return r.Model.Init }, Init{Config: "c"}},
		{"rollout.temperature=1", func(r *Resolved) any { return r.Rollout.Temperature }, 1.0},
	}
	for _, test := range tests {
		t.Run(test.setting, func(t *testing.T) {
			t.Parallel()
			r, err := Load(nil, []string{test.setting})
			require.NoError(t, err)
			require.Equal(t, test.want, test.get(r))
		})
	}
}

// A long value does not make the message long.
func TestFaultsAreShort(t *testing.T) {
	t.Parallel()
	r, err := Load(write(t, small+"[run]\nname = \"/"+strings.Repeat("ä", 100000)+"\""), nil)
	require.NoError(t, err)
	err = r.Validate(TrainTask)
	require.ErrorContains(t, err, "run.name is \"/ää")
	require.ErrorContains(t, err, "ä\", expected a name without slashes")
	require.Less(t, len(err.Error()), 2000)
}

const allSections = "[run], [model], [data], [rollout], [reward], [loss], [train], [sft], [inference], [device], " +
	"[parallel], [torch], [checkpoint], [eval], [log] or [control]"

func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, document string
		settings       []string
		want           []string // lines, without the file's name
	}{
		{"unknown key", "[rollout]\ntop_k = 1\n  grop_size = 8 # eight\n", nil, []string{
			":3: unknown key rollout.grop_size, did you mean rollout.group_size?",
			"  3 |   grop_size = 8 # eight", "    |   ^^^^^^^^^"}},
		{"key of another section", "[train]\ngroup_size = 8", nil, []string{
			":2: unknown key train.group_size, did you mean rollout.group_size?", "  2 | group_size = 8",
			"    | ^^^^^^^^^^"}},
		{"long line", "[run]\nname = \"" + strings.Repeat("ä", 5000) + "\" " + strings.Repeat("x", 5000), nil, []string{
			":2: expected newline but got U+0078 'x'",
			"  2 | …" + strings.Repeat("ä", 28) + "\" " + strings.Repeat("x", 60) + "…",
			"    | " + strings.Repeat(" ", 31) + strings.Repeat("^", 60)}},
		{"no section", "", []string{"group_size=3"},
			[]string{"-set: unknown key group_size, did you mean rollout.group_size?"}},
		{"unknown section", "[rolout]\ngroup_size = 8\nx = 1", nil, []string{
			":1: unknown section rolout, did you mean rollout?", "  1 | [rolout]", "    |  ^^^^^^"}},
		{"top-level key", "steps = 8", nil,
			[]string{":1: unknown key steps, did you mean run.steps?", "  1 | steps = 8", "    | ^^^^^"}},
		{"dotted", "a.b = 8\nrun.stepz = 1", nil, []string{
			":1: unknown key a.b, expected a key of " + allSections, "  1 | a.b = 8", "    | ^^^",
			":2: unknown key run.stepz, did you mean run.steps?", "  2 | run.stepz = 1", "    | ^^^^^^^^^"}},
		{"wrong types, all of them", "[run]\nsteps = \"eight\"\nseed = -1\n[data]\nshuffle = 1\nprompt_key = " +
			"3\neval = [1]\n[train]\nlr = true\nwarmup = 1.5", nil, []string{
			`:2: run.steps: expected a whole number, found the string "eight"`, `  2 | steps = "eight"`,
			"    | ^^^^^^^^^^^^^^^",
			":3: run.seed: expected a whole number, 0 or more, found -1", "  3 | seed = -1", "    | ^^^^^^^^^",
			":5: data.shuffle: expected true or false, found 1", "  5 | shuffle = 1", "    | ^^^^^^^^^^^",
			":6: data.prompt_key: expected a string, found 3", "  6 | prompt_key = 3", "    | ^^^^^^^^^^^^^^",
			":7: data.eval: expected a list of strings, found a list", "  7 | eval = [1]", "    | ^^^^^^^^^^",
			":9: train.lr: expected a number, found true", "  9 | lr = true", "    | ^^^^^^^^^",
			":10: train.warmup: expected a whole number, found 1.5", "  10 | warmup = 1.5", "     | ^^^^^^^^^^^^"}},
		{"not finite", "[train]\nlr = nan", nil,
			[]string{":2: train.lr: expected a number, found NaN", "  2 | lr = nan", "    | ^^^^^^^^"}},
		{"date", "[run]\nsteps = 2020-01-01", nil, []string{
			":2: run.steps: expected a whole number, found the date or time 2020-01-01", "  2 | steps = 2020-01-01",
			"    | ^^^^^^^^^^^^^^^^^^"}},
		{"section as a value", "run = 3", nil,
			[]string{":1: run is a section, expected run.<key> = …", "  1 | run = 3", "    | ^^^"}},
		{"value as a section", "[run.steps]\nx = 1", nil,
			[]string{":1: run.steps is a value, expected run.steps = …", "  1 | [run.steps]", "    |  ^^^^^^^^^"}},
		{"inline table", "model = {init = {layer = 2}}", nil, []string{
			":1: unknown key model.init.layer, expected a key of [model.init]: config",
			"  1 | model = {init = {layer = 2}}", "    | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^"}},
		{"array of tables", "[[run]]\nsteps = 1", nil,
			[]string{":1: [[run]] is an array of tables, expected [run]", "  1 | [[run]]", "    |   ^^^"}},
		{"syntax error", "[run]\nsteps 8", nil,
			[]string{":2: expected '=' after key", "  2 | steps 8", "    |       ^"}},
		{"twice", "[run]\nsteps = 8\nsteps = 9", nil,
			[]string{":3: key steps is already defined", "  3 | steps = 9", "    | ^^^^^^^^^"}},
		{"settings", "", []string{"run.stepz=3", "run.steps=x", "run.steps", "=3", "run.steps=1\nrun.seed=2"}, []string{
			"-set: unknown key run.stepz, did you mean run.steps?",
			`-set: run.steps: expected a whole number, found "x"`,
			`-set: setting is "run.steps", expected section.key=value`,
			`-set: setting is "=3", expected section.key=value`,
			`-set: run.steps: expected a whole number, found "1\nrun.seed=2"`}},
		{"settings of unknown keys", "", []string{"rollout.grop_size=x", "a\nb=1", "run=x"}, []string{
			"-set: unknown key rollout.grop_size, did you mean rollout.group_size?",
			`-set: setting is "a\nb=1", expected section.key=value`, "-set: run is a section, expected run.<key> = …"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			files := write(t, test.document)
			_, err := Load(files, test.settings)
			require.Error(t, err)
			require.Equal(t, strings.Join(test.want, "\n"), strings.ReplaceAll(err.Error(), files[0], ""))
		})
	}
	_, err := Load([]string{"/nonexistent/run.toml"}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The message about an unknown name says what it probably means: the setting of another
// program, or a similar key. If it resembles none, the message lists the keys.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	const parts = "unknown key "
	for _, test := range []struct{ document, want string }{
		{"[train]\nlearning_rate = 1", parts + "train.learning_rate: use train.lr"},
		{"learning_rate = 1", parts + "learning_rate: use train.lr"},
		{"[rollout]\nn = 8", parts + "rollout.n: use rollout.group_size"},
		{"[run]\nepochs = 2", parts + "run.epochs: use run.steps, in steps: epochs × prompts / " +
			"rollout.prompts_per_step (sft.steps for easyrl sft)"},
		{"[train]\nbf16 = true", parts + "train.bf16: easyrl always computes in float32"},
		{"[actor_rollout_ref.actor.optim]\nlr = 1e-6", parts + "actor_rollout_ref.actor.optim.lr: use train.lr"},
		{"[trainer]\ntotal_epochs = 15\nsave_freq = 5", parts + "trainer.total_epochs: use run.steps, in steps: " +
			"epochs × prompts / rollout.prompts_per_step (sft.steps for easyrl sft)\n" +
			parts + "trainer.save_freq: use checkpoint.every"},
		{"[optim]\nweight_decay = 0.1", parts + "optim.weight_decay, did you mean train.weight_decay?"},
		{"[optim]\nwibble = 1\nlr = 2", parts + "optim.lr: use train.lr"},
		{"[wibble]\nwobble = 1", "unknown section wibble, expected " + allSections},
		{"[wibble]", "unknown section wibble, expected " + allSections},
		{"[wibble]\n[wibble.a]\n[run]", "unknown section wibble.a, expected a key of " + allSections},
		{"[wibble]\n[run]\nstep = 1", "unknown section wibble, expected " + allSections + "\n" + parts +
			"run.step, did you mean run.steps?"},
		{"[run]\nwibble = 1", parts + "run.wibble, expected a key of [run]: name, dir, seed, steps, mode"},
		{"wibble = 1", parts + "wibble, expected a key of " + allSections},
		{"[train]\nclip-grad = 1", parts + "train.clip-grad, did you mean train.clip_grad?"},
		{"[train]\nLR = 1", parts + "train.LR, did you mean train.lr?"},
		{"[train]\nwarmups = 1", parts + "train.warmups, did you mean train.warmup?"},
		{"[eval]\nprompt = 1", parts + "eval.prompt, did you mean eval.prompts?"},
		{"[rollout]\nprompts = 4", parts + "rollout.prompts, did you mean eval.prompts?"},
		{"[checkpoint]\nkep = 4", parts + "checkpoint.kep, did you mean checkpoint.keep?"},
		{"[train]\ngrop_size = 4", parts + "train.grop_size, did you mean rollout.group_size?"},
		{"[sftt]\nsteps = 4", "unknown section sftt, did you mean sft?"},
		{"[parallel]\nep = 4", parts + "parallel.ep: parallel.dp, parallel.tp and parallel.pp set the ranks that " +
			"train, inference.endpoints those that sample"},
	} {
		_, err := Load(write(t, test.document), nil)
		require.Error(t, err, test.document)
		var got []string
		for line := range strings.Lines(err.Error()) {
			if at := strings.Index(line, "unknown "); at >= 0 && !strings.HasPrefix(line, " ") {
				got = append(got, strings.TrimSpace(line[at:]))
			}
		}
		require.Equal(t, test.want, strings.Join(got, "\n"), test.document)
	}
	_, err := Load(nil, []string{"num_generations=8", "actor_rollout_ref.rollout.n=8", "--learning-rate=1e-5"})
	require.EqualError(t, err, "-set: unknown key num_generations: use rollout.group_size\n-set: unknown key "+
		"actor_rollout_ref.rollout.n: use rollout.group_size\n"+
		"-set: unknown key --learning-rate: use train.lr")
}

// Every key that advice about another program's setting names exists.
func TestAdviceNamesKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../internal/foreign/testdata/names.txt")
	require.NoError(t, err)
	known := append(Keys(), "reward.parts.NAME.weight", "reward.parts.NAME.kind")
	named := regexp.MustCompile(
		`\b(run|model|data|rollout|reward|loss|train|sft|inference|device|parallel|checkpoint|eval|log|` +
			`control)\.[a-z_]+`)
	for line := range strings.Lines(string(text)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		setting, _ := foreign.Lookup(name)
		if setting.Key != "" {
			require.Contains(t, known, setting.Key, name)
		}
		for _, key := range named.FindAllString(setting.Note, -1) {
			require.Contains(t, known, key, name)
		}
	}
}

func TestMarksFollowTabsAndWideText(t *testing.T) {
	t.Parallel()
	files := write(t, "[data]\n\tpromt_key = \"é\"\r\n")
	_, err := Load(files, nil)
	require.Equal(t, files[0]+
		":2: unknown key data.promt_key, did you mean data.prompt_key?\n  2 | \tpromt_key = \"é\"\n    | \t^^^^^^^^^",
		err.Error())
}

// A run's run.toml, the resolved configuration, repeats the run.
func TestWrittenRunRepeatsItself(t *testing.T) {
	t.Parallel()
	documents := map[string]string{
		"path": small + "[rollout]\nstop = [\"\\n\\t\", 'quo\"te\\', \"é\\u0001\\u007F\"]\ntop_p = 0.1\n[train]\nlr " +
			"= 1e-7\n[run]\nseed = 9223372036854775807",
		"init": "[model.init]\nconfig = \"c\"\n[data]\ntrain=\"x\"",
	}
	for name, document := range documents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Load(write(t, document), nil)
			require.NoError(t, err)
			require.NoError(t, r.Validate(TrainTask))
			dir := t.TempDir()
			require.NoError(t, r.WriteFile(dir))
			again, err := Load([]string{filepath.Join(dir, RunFile)}, nil)
			require.NoError(t, err)
			for i, f := range shapeOf(&again.Config).fields {
				want := shapeOf(&r.Config).fields[i].value
				if f.value.Kind() == reflect.Slice && f.value.Len() == 0 {
					require.Zero(t, want.Len(), f.key)
					continue
				}
				require.Equal(t, want.Interface(), f.value.Interface(), f.key)
			}
			require.NoError(t, again.Validate(TrainTask))
		})
	}
	r, err := Load(write(t, small), nil)
	require.NoError(t, err)
	require.ErrorContains(t, r.WriteFile("/nonexistent"), "write resolved run")
}

func TestExplain(t *testing.T) {
	t.Parallel()
	files := write(t, small)
	r, err := Load(files, []string{"run.steps=3"})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, r.Explain(&out))
	require.Contains(t, out.String(), "steps = 3                                # -set\n")
	require.Contains(t, out.String(), "path = \"m\"                               # "+files[0]+":2\n")
	require.Contains(t, out.String(), "group_size = 8                           # default\n")
	require.NotContains(t, out.String(), "[model.init]")
	for _, f := range shapeOf(&r.Config).fields {
		key := f.key
		require.Equal(t, f.idle, strings.HasPrefix(key, "reward.") &&
			!r.Reward.Takes(strings.TrimPrefix(key, "reward.")), key)
		if !strings.HasPrefix(key, "model.init.") && !f.idle {
			require.Contains(t, out.String(), "["+parent(key)+"]\n", key)
			require.Contains(t, out.String(), "\n"+key[len(parent(key))+1:]+" = ", key)
		}
	}
	again, err := Load(write(t, out.String()), nil)
	require.NoError(t, err, "the explanation is a valid configuration")
	require.Equal(t, 3, again.Run.Steps)
}

func FuzzLoad(f *testing.F) {
	for _, file := range []string{"quickstart.toml", "quickstart-sft.toml"} {
		document, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(document, "run.steps=3")
	}
	f.Add([]byte("[run]\nsteps = [[1], {a = 2}]\n\"run.name\" = 'x'\n[[a]]\n"), "a.b='''\nx'''")
	f.Add([]byte("model = {init = {layers = \"é\", x.y = 1}}\r\n\trun.steps=1979-05-27"), "model.init={}")
	f.Fuzz(func(t *testing.T, document []byte, setting string) {
		file := filepath.Join(t.TempDir(), "run.toml")
		require.NoError(t, os.WriteFile(file, document, 0o644))
		r, err := Load([]string{file}, []string{setting})
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		_ = r.Validate(AnyTask)
		var out bytes.Buffer
		require.NoError(t, r.write(&out, false))
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
		_, err = Load([]string{file}, nil)
		require.NoError(t, err, "%s", out.String())
	})
}

// A tree of values encodes, whatever the names of tables.
func TestTree(t *testing.T) {
	t.Parallel()
	r, err := Load(nil, []string{`reward.sources."a.b/c".kind=exact`, "data.weights=[1.5, 2.0]", "eval.k=7"})
	require.NoError(t, err)
	text, err := json.Marshal(r.Tree())
	require.NoError(t, err)
	var tree map[string]map[string]any
	require.NoError(t, json.Unmarshal(text, &tree))
	require.EqualValues(t, 7, tree["eval"]["k"])
	require.Equal(t, []any{1.5, 2.0}, tree["data"]["weights"])
	require.Equal(t, []any{}, tree["data"]["train"])
	require.Equal(t, map[string]any{"a.b/c": map[string]any{"kind": "exact", "think": false}},
		tree["reward"]["sources"])
	require.Equal(t, "-set", r.Origins()[`reward.sources."a.b/c".kind`])
	require.Equal(t, "default", r.Origins()["eval.temperature"])
}

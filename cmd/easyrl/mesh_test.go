package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report"
)

// meshRun is tinyRun with a decoder that tensor and pipeline ranks divide unevenly: it has three
// layers, four key-value heads, and five blocks in the feed-forward size and in the vocabulary, of
// which the last is not full. About half of the responses get a reward.
func meshRun(t *testing.T, model string) string {
	t.Helper()
	dir := tinyRun(t)
	write(t, dir, "config.json", fmt.Sprintf(
		`{"model_type":%q,"hidden_size":40,"intermediate_size":150,"num_hidden_layers":3,"num_attention_heads":8,
		"num_key_value_heads":4,"head_dim":10,"vocab_size":157,"max_position_embeddings":64,"rms_norm_eps":1e-6,`+
			`"rope_theta":10000,
		"hidden_act":"silu","tie_word_embeddings":%v,"eos_token_id":1,"initializer_range":0.1}`, model,
		model == "qwen2"))
	var chars []string
	for i := range 152 {
		chars = append(chars, fmt.Sprint('!'+i))
	}
	write(t, dir, "tokenizer_config.json", `{"char_ords":[`+strings.Join(chars, ",")+`],"model_max_length":64}`)
	config, err := os.ReadFile(filepath.Join(dir, "run.toml"))
	require.NoError(t, err)
	write(t, dir, "run.toml", strings.Replace(string(config), `kind = "prefix"`,
		"kind = \"regex\"\npattern = '^[!-i]'", 1))
	return dir
}

// mesh returns the setting of a mesh.
func mesh(m parallel.Mesh) string {
	return fmt.Sprintf("parallel={dp=%d,tp=%d,pp=%d}", m.DP, m.TP, m.PP)
}

// meshWith returns the setting of a mesh whose ranks divide more, by turns: moments, gradients, rows.
func meshWith(m parallel.Mesh, turn int) string {
	return fmt.Sprintf("parallel={dp=%d,tp=%d,pp=%d,zero=%d,sequence=%v}", m.DP, m.TP, m.PP, turn%3, turn%2 == 1)
}

// changeless returns a run's metrics, apart from times, memory and the state of the fleet.
func changeless(t *testing.T, run string) []report.Values {
	t.Helper()
	steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
	require.NoError(t, err)
	for _, values := range steps {
		maps.DeleteFunc(values, func(name string, _ float64) bool {
			prefix, _, _ := strings.Cut(name, "/")
			return slices.Contains([]string{"time", "timing_s", "perf", "idle", "memory", "fleet", "traffic"}, prefix)
		})
	}
	return steps
}

// requireSameBits requires that a run ended in another one's weights, moments and metrics, and that
// its trainer computed the log-probabilities that its instances recorded.
func requireSameBits(t *testing.T, want, got string, steps int) {
	t.Helper()
	require.Equal(t, checkpointHash(t, want, steps), checkpointHash(t, got, steps))
	values := changeless(t, got)
	require.EqualValues(t, steps, values[len(values)-1]["step"])
	require.Equal(t, changeless(t, want), values)
	require.Equal(t, checksums(t, want), checksums(t, got))
	for _, v := range values {
		require.Zero(t, v["mismatch/logprob_abs_max"])
	}
}

// meshCase is a run that ends in the same bits on some meshes.
type meshCase struct {
	name, model string
	settings    []string
	meshes      []parallel.Mesh
	clips       bool // whether ratios must reach the clip
}

func meshCases() []meshCase {
	dp, tp, pp := func(n int) parallel.Mesh { return parallel.Mesh{DP: n, TP: 1, PP: 1} },
		func(n int) parallel.Mesh { return parallel.Mesh{DP: 1, TP: n, PP: 1} },
		func(n int) parallel.Mesh { return parallel.Mesh{DP: 1, TP: 1, PP: n} }
	four, eight := parallel.Mesh{DP: 1, TP: 2, PP: 2}, parallel.Mesh{DP: 2, TP: 2, PP: 2}
	const narrow = "loss.epsilon_low=0.001"
	return []meshCase{
		{"clipped", "qwen2", []string{"train.minibatches=2", narrow, "loss.epsilon_high=0.001"},
			[]parallel.Mesh{dp(2), tp(4), pp(3), eight}, true},
		{"reference", "qwen2", []string{"loss.beta=0.1", "train.recompute=true"},
			[]parallel.Mesh{dp(4), tp(2), pp(2), four}, false},
		{"both", "llama", []string{"loss.beta=0.1", "train.minibatches=3", narrow},
			[]parallel.Mesh{dp(3), tp(4), pp(3), eight}, true},
		{"gspo", "qwen3", []string{"loss.kind=gspo", "loss.aggregation=sequence-mean", "train.minibatches=2", narrow},
			[]parallel.Mesh{dp(3), tp(2), pp(2), four, eight}, true},
		{"split", "llama", []string{"train.micro_batch_tokens=10", "train.recompute=true"},
			[]parallel.Mesh{dp(3), dp(4), tp(2), pp(3), eight}, false},
		{"previous", "qwen3", []string{"loss.old_policy=previous-step", "train.minibatches=2", narrow},
			[]parallel.Mesh{dp(2), tp(4), pp(2), four}, true},
		{"previous split", "qwen2", []string{"loss.old_policy=previous-step", "train.micro_batch_tokens=10"},
			[]parallel.Mesh{dp(4), tp(2), pp(3), eight}, true},
		{"dynamic", "qwen2", []string{"rollout.dynamic_sampling=2", "rollout.group_size=2"},
			[]parallel.Mesh{dp(2), tp(2), pp(3), four}, false},
		{"sync", "qwen3", []string{"run.mode=sync", "train.minibatches=2"},
			[]parallel.Mesh{dp(3), tp(4), pp(2), eight}, true},
		{"colocated", "llama", []string{"run.mode=colocated", "loss.aggregation=constant", "eval.every=2"},
			[]parallel.Mesh{dp(2), tp(2), pp(2)}, false},
		{"corrected", "qwen3", []string{"loss.correction=mask", "rollout.top_p=0.9", "inference.instances=3"},
			[]parallel.Mesh{dp(4), tp(2), pp(3), four}, false},
		{"whole batch", "llama", []string{"loss.kind=reinforce", "loss.advantage=batch", "device.threads=2"},
			[]parallel.Mesh{dp(2), tp(4), pp(2)}, false},
	}
}

// Data, tensor and pipeline ranks end in the weights, moments and metrics of one rank.
func TestMeshesEndInSameBits(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{}
	for _, model := range []string{"qwen2", "qwen3", "llama"} {
		dirs[model] = meshRun(t, model)
	}
	different := map[string]bool{}
	cases := meshCases()
	for i, c := range cases {
		dir := dirs[c.model]
		want := trainTiny(t, dir, c.name, c.settings...)
		different[checkpointHash(t, want, 5)] = true
		clipped := 0.0
		for _, v := range changeless(t, want) {
			require.True(t, v["step"] == 0 || v["actor/grad_norm"] > 0, c.name)
			clipped += v["actor/clip_frac"]
		}
		require.True(t, !c.clips || clipped > 0, c.name)
		for k, m := range c.meshes {
			t.Run(c.name+"/"+m.String(), func(t *testing.T) {
				requireSameBits(t, want, trainTiny(t, dir, c.name+m.String(),
					append([]string{meshWith(m, i+k)}, c.settings...)...), 5)
			})
		}
	}
	require.Len(t, different, len(cases), "cases differ")
}

// With parallel.reduce = "sum" the bits depend on the mesh, so that the other tests can fail. Log-probabilities
// are still those of the instances, apart from rounding.
func TestReducedSumsEndInOtherBits(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	want := trainTiny(t, dir, "one", "run.steps=1")
	got := trainTiny(t, dir, "summed", "run.steps=1", `parallel={tp=4,reduce="sum"}`)
	require.NotEqual(t, checkpointHash(t, want, 1), checkpointHash(t, got, 1))
	most := changeless(t, got)[0]["mismatch/logprob_abs_max"]
	require.Positive(t, most)
	require.Less(t, most, 1e-4)
	require.InEpsilon(t, changeless(t, want)[0]["actor/grad_norm"], changeless(t, got)[0]["actor/grad_norm"], 1e-4)
}

// demonstrations returns a file of demonstrations.
func demonstrations() string {
	var all strings.Builder
	for i := range 40 {
		fmt.Fprintf(&all, `{"prompt":"%d,%d","response":"%s"}`+"\n", i%10, i/10, strings.Repeat("ab", i%7))
	}
	return all.String()
}

// tuneTiny runs easyrl sft with dir's run into its own folder and returns that folder.
func tuneTiny(t *testing.T, dir, name string, settings ...string) string {
	t.Helper()
	out := filepath.Join(dir, name)
	args := []string{"sft", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out)}
	for _, s := range settings {
		args = append(args, "-set", s)
	}
	status, _, stderr := command(t, args...)
	require.Zero(t, status, stderr)
	return out
}

// Supervised training and its evaluation have the same bits on all meshes, too.
func TestMeshesTuneToSameBits(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	data := write(t, dir, "demos.jsonl", demonstrations())
	settings := []string{"sft.steps=5", "sft.batch_size=16", "eval.every=2", "sft.data=" + data, "sft.eval=" + data}
	want := tuneTiny(t, dir, "one", settings...)
	for _, m := range []parallel.Mesh{{DP: 3, TP: 1, PP: 1}, {DP: 1, TP: 4, PP: 1}, {DP: 1, TP: 1, PP: 3},
		{DP: 2, TP: 2, PP: 2}} {
		requireSameBits(t, want, tuneTiny(t, dir, m.String(), append(settings, mesh(m))...), 5)
	}
}

// The bits are the same if groups arrive in any order from three instances, of which one dies.
func TestMeshesWithServers(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "llama")
	settings := []string{"rollout.prompts_per_step=12", "train.minibatches=2"}
	want := trainTiny(t, dir, "one", settings...)
	model := initTiny(t, dir, "served", 9)
	for _, m := range []parallel.Mesh{{DP: 3, TP: 1, PP: 1}, {DP: 1, TP: 2, PP: 1}, {DP: 1, TP: 1, PP: 3},
		{DP: 2, TP: 2, PP: 2}} {
		var proxies []*proxy
		var asked atomic.Int64 // of the first instance
		for n := range 3 {
			root, _, _ := serveFolder(t, "-model", model, "-threads", "1", "-max-running", "5")
			p := newProxy(t, root)
			p.on(func(x *exchange) {
				if !x.update && n == 0 && asked.Add(1) > 7 {
					p.gone.Store(true)
					panic(http.ErrAbortHandler)
				}
				<-time.After(rand.N(20 * time.Millisecond))
				x.pass()
			})
			proxies = append(proxies, p)
		}
		out := trainTiny(t, dir, m.String(),
			append(settings, mesh(m), "inference.kind=easyrl", endpoints(proxies...))...)
		requireSameBits(t, want, out, 5)
		require.Greater(t, asked.Load(), int64(7), "the first instance died")
	}
}

// A run that resumes on other meshes ends in the bits of an uninterrupted run of one rank.
func TestMeshResumesOnOthers(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen2")
	one, eight := parallel.Mesh{DP: 1, TP: 1, PP: 1}, parallel.Mesh{DP: 2, TP: 2, PP: 2}
	for name, settings := range map[string][]string{
		"plain":    nil,
		"previous": {"loss.old_policy=previous-step", "train.minibatches=2", "loss.beta=0.1"},
	} {
		want := trainTiny(t, dir, name, append(settings, "run.steps=8")...)
		for i, meshes := range [][]parallel.Mesh{
			{{DP: 1, TP: 2, PP: 1}, {DP: 1, TP: 1, PP: 2}, {DP: 2, TP: 1, PP: 1}, one},
			{one, eight, {DP: 1, TP: 4, PP: 1}, {DP: 1, TP: 1, PP: 3}},
		} {
			out := fmt.Sprint(name, i)
			trainTiny(t, dir, out, append(settings, "run.steps=2", mesh(meshes[0]))...)
			for k, m := range meshes[1:] {
				mustResume(t, dir, filepath.Join(dir, out),
					append(settings, fmt.Sprintf("run.steps=%d", 4+2*k), mesh(m))...)
			}
			requireSameBits(t, want, filepath.Join(dir, out), 8)
		}
	}
}

// A checkpoint without the previous step's policy resumes with a warning, and in the same bits, on any
// mesh.
func TestMeshResumesWithoutPreviousPolicy(t *testing.T) {
	t.Parallel()
	dir := meshRun(t, "qwen3")
	var want string
	for i, m := range []parallel.Mesh{{DP: 1, TP: 1, PP: 1}, {DP: 2, TP: 1, PP: 1}, {DP: 1, TP: 2, PP: 1},
		{DP: 1, TP: 1, PP: 2}} {
		out := trainTiny(t, dir, m.String(), "run.steps=2", mesh(m))
		settings := []string{"loss.old_policy=previous-step", "train.minibatches=2", "loss.epsilon_low=0.001",
			meshWith(m, i)}
		code, errs := resumeTiny(t, dir, out, settings...)
		require.Zero(t, code, errs)
		require.Equal(t, 1, strings.Count(errs, "lacks the policy that sampled step 2: step 3 uses its own instead"),
			errs)
		if want == "" {
			want = out
		}
		requireSameBits(t, want, out, 5)
		if m.PP == 2 { // the new checkpoint has it
			code, errs = resumeTiny(t, dir, out, append(settings, "run.steps=6")...)
			require.Zero(t, code, errs)
			require.NotContains(t, errs, "lacks the policy")
		}
	}
}

package page

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// responsesOf returns a group with these rewards, each with a text of its own.
func responsesOf(rewards ...float64) group {
	g := group{}
	for i, r := range rewards {
		g.Responses = append(g.Responses, response{Text: fmt.Sprint(i), Reward: r})
	}
	return g
}

// Different responses are shown, wrong ones first, and the best one among them.
func TestChooseResponses(t *testing.T) {
	t.Parallel()
	texts := func(g group) string {
		var all []string
		for _, r := range g.choose() {
			all = append(all, fmt.Sprintf("%s×%d", r.Text, r.Count))
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, "1×1 3×1 0×1 2×1", texts(responsesOf(1, 0, 1, 0)))
	require.Equal(t, "1×1 2×1 3×1 6×1", texts(responsesOf(.5, 0, 0, 0, 0, .5, 1)))
	same := responsesOf(0, 0, 1, 0)
	same.Responses[1].Text, same.Responses[3].Text = "0", "0"
	require.Equal(t, "0×3 2×1", texts(same))
	same.Responses[3].Finish = "length"
	require.Equal(t, "0×2 0×1 2×1", texts(same))
	require.Empty(t, texts(group{}))
}

func TestWrongFirst(t *testing.T) {
	t.Parallel()
	groups := []group{responsesOf(1, 1), responsesOf(0, 0), responsesOf(1, .5), responsesOf(0, 1), responsesOf(1, 1, 1)}
	wrongFirst(groups)
	var means []string
	for _, g := range groups {
		means = append(means, fmt.Sprintf("%.2f of %d", g.Mean(), len(g.Responses)))
	}
	require.Equal(t, []string{"0.50 of 2", "0.00 of 2", "0.75 of 2", "1.00 of 2", "1.00 of 3"}, means)
}

func TestLevel(t *testing.T) {
	t.Parallel()
	for nats, want := range map[float64]int{0: 0, .09: 0, .1: 1, .49: 1, .5: 2, .99: 2, 1: 3, 2: 4, 3.9: 4, 4: 5,
		50: 5, -1e-9: 0} {
		require.Equal(t, want, level(nats), nats)
	}
}

// The page shows tokens with their values: text, log-probability, entropy, advantage.
func TestTokenView(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := filepath.Join(dir, "model")
	require.NoError(t, os.Mkdir(from, 0o755))
	vocab :=
		`{"model":{"type":"BPE","vocab":{"a":0,"<b":1,"\u010a":2,"\u00c3":3,"\u00a9":4,"<|end|>":5},"merges":[]},` +
			`"added_tokens":[{"id":5,"content":"<|end|>","special":true}],"decoder":{"type":"ByteLevel"},` +
			`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}}`
	require.NoError(t, os.WriteFile(filepath.Join(from, "tokenizer.json"), []byte(vocab), 0o644))
	require.NoError(t, report.About{Name: "x", Tokenizer: from}.Write(dir))
	group := func(step int) string {
		line, err := json.Marshal(map[string]any{"step": step, "prompt_id": "p", "prompt": "q", "responses": []any{
			map[string]any{"text": "a<b\né", "ids": []int{0, 1, 2, 3, 4, 5},
				"logprobs":  []float64{-.01, -.7, -5, -.2, -.3, -2.5},
				"entropies": []float64{0, .6, 0, 0, 0, 0}, "reward": 1, "advantage": 1.25},
			map[string]any{"text": "a", "ids": []int{0}, "logprobs": []float64{-.02}, "reward": 0, "advantage": -1.25},
			map[string]any{"text": "old", "ids": []int{0}, "reward": 0},
		}})
		require.NoError(t, err)
		return string(line)
	}
	writeRollouts(t, dir, 1, group(1))
	html, err := Part("answers", dir, &report.Steps{})
	require.NoError(t, err)
	shown := string(html)
	require.Contains(t, shown, `<span class="tokens up"><i title="log-probability -0.010, entropy 0.000">a</i><i `+
		`class="q2 e2" title="log-probability -0.700, entropy 0.600">&lt;b</i>`+
		`<i class="q5" title="log-probability -5.000, entropy 0.000">↵`+"\n"+
		`</i><i class="q1" title="log-probability -0.200, entropy 0.000">·</i>`+
		`<i class="q1" title="log-probability -0.300, entropy 0.000">é</i>`)
	require.Contains(t, shown, `<i class="q4" title="log-probability -2.500, entropy 0.000">&lt;|end|&gt;</i></span>`)
	require.Contains(t, shown, `reward 1 · advantage &#43;1.25 · 6 tokens`)
	require.Contains(t, shown, `<span class="tokens down"><i title="log-probability -0.020">a</i></span>`,
		"without an entropy none is shown")
	require.Contains(t, shown, `<div class="text">old</div>`, "without log-probabilities the text is shown")
	require.Less(t, strings.Index(shown, "advantage -1.25"), strings.Index(shown, "advantage &#43;1.25"),
		"wrong ones first")
	require.Contains(t, shown, "entropy in nats", "the legend")

	require.NoError(t, os.RemoveAll(from))
	html, err = Part("answers", dir, &report.Steps{})
	require.NoError(t, err)
	require.Contains(t, string(html), `>1 </i>`, "without a tokenizer ids are shown")
}

// Tokens of an environment are shown between those of the policy, which alone have values and count.
func TestViewOfSpans(t *testing.T) {
	t.Parallel()
	var r response
	require.NoError(t, json.Unmarshal([]byte(`{"spans":[{"from":"policy","ids":[5],"logprobs":[-0.01]},`+
		`{"from":"environment","ids":[6,7]},`+
		`{"from":"policy","ids":[8],"logprobs":[-3],"trained":true}],"entropies":[0.6]}`), &r))
	require.Equal(t, []int{2, 4}, []int{r.Length(), r.Total()})
	require.Equal(t, []token{
		{"5 ", "", "log-probability -0.010"},
		{"6 ", "environment", "written by the environment"}, {"7 ", "environment", "written by the environment"},
		{"8 ", "q4 e2", "log-probability -3.000, entropy 0.600"},
	}, newTokenViews(t.TempDir()).view(&r))
}

// Long responses and many of them do not make the page large.
func TestTokenViewsAreBounded(t *testing.T) {
	t.Parallel()
	long := response{span: span{IDs: make([]int32, 10_000), Logprobs: make([]float64, 10_000)}}
	v := newTokenViews(t.TempDir())
	all := 0
	for range 20 {
		n := len(v.view(&long))
		require.True(t, n == 0 || n == viewTokens)
		all += n
	}
	require.LessOrEqual(t, all, pageTokens)
	require.Positive(t, all)
}

func TestAbout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tiles, err := About(dir)
	require.NoError(t, err)
	require.Empty(t, tiles)
	require.NoError(t, report.About{Name: "n", Task: "train", Mode: "sync", Model: "m", Parameters: 1_540_000_000,
		Objective: "grpo", Reward: "math"}.Write(dir))
	tiles, err = About(dir)
	require.NoError(t, err)
	require.Equal(t, []Tile{{"run", "n, sync", ""}, {"model", "m, 1.54 B parameters", ""}, {"objective", "grpo", ""},
		{"reward", "math", ""}}, tiles)
	require.NoError(t, report.About{Name: "n", Model: "m", Objective: "cross-entropy"}.Write(dir))
	tiles, err = About(dir)
	require.NoError(t, err)
	require.Len(t, tiles, 3, "sft has no reward")
}

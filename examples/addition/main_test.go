package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/tokenizer"
)

func TestWorked(t *testing.T) {
	t.Parallel()
	never := func() bool { return false }
	always := func() bool { return true }
	tests := []struct {
		a, b   int
		forget func() bool
		want   string
	}{
		{914, 807, never, "<think>4+7+0=11;1+0+1=2;9+8+0=17</think>1721"},
		{988, 884, never, "<think>8+4+0=12;8+8+1=17;9+8+1=18</think>1872"},
		{988, 884, always, "<think>8+4+0=12;8+8+0=16;9+8+0=17</think>1762"},
		{100, 200, always, "<think>0+0+0=0;0+0+0=0;1+2+0=3</think>300"},
		{999, 999, never, "<think>9+9+0=18;9+9+1=19;9+9+1=19</think>1998"},
	}
	for _, test := range tests {
		require.Equal(t, test.want, worked(problem{test.a, test.b}, test.forget))
	}
	forgets := []bool{false, true} // only the second carry
	require.Equal(t, "<think>8+4+0=12;8+8+1=17;9+8+0=17</think>1772", worked(problem{988, 884}, func() bool {
		first := forgets[0]
		forgets = forgets[1:]
		return first
	}))
	require.Equal(t, "1400", lazy(problem{580, 989}))
}

// Two digits carry with probability .45, or .55 with a carry in. By that, the
// share of worked demonstrations without a slip is
//
//	.55·(.55 + .45·.3) + .45·.3·(.45 + .55·.3) = .460
//
// A lazy demonstration has 4.6 tokens including the end token, a worked one 31.1.
func TestDemonstrations(t *testing.T) {
	t.Parallel()
	demos := demonstrations(1, 28_800)
	require.Len(t, demos, 28_800)
	right, tokens, lazyOnes := 0, 0, 0
	for _, d := range demos {
		var p problem
		p.a, p.b = parse(t, d.Prompt)
		require.False(t, p.heldOut(), d.Prompt)
		thought, answer, thinks := strings.Cut(d.Response, "</think>")
		tokens++ // <eos>
		if thinks {
			tokens += 2 + len(strings.TrimPrefix(thought, "<think>")) + len(answer)
		} else {
			answer = d.Response
			tokens += len(answer)
			lazyOnes++
		}
		if answer == p.answer() {
			right++
		}
	}
	n := float64(len(demos))
	require.InDelta(t, 0.7*0.460, float64(right)/n, 0.01)
	require.InDelta(t, 0.30, float64(lazyOnes)/n, 0.01)
	require.InDelta(t, 0.3*4.6+0.7*31.1, float64(tokens)/n, 0.1)
}

func parse(t *testing.T, prompt string) (a, b int) {
	t.Helper()
	left, right, ok := strings.Cut(strings.TrimSuffix(prompt, "="), "+")
	require.True(t, ok, prompt)
	require.NoError(t, json.Unmarshal([]byte(left), &a))
	require.NoError(t, json.Unmarshal([]byte(right), &b))
	return a, b
}

func TestSplit(t *testing.T) {
	t.Parallel()
	train, test, err := split(7, 500, 100)
	require.NoError(t, err)
	require.Len(t, train, 500)
	require.Len(t, test, 100)
	seen := map[string]bool{}
	for i, row := range append(train, test...) {
		a, b := parse(t, row.Prompt)
		require.Equal(t, i >= 500, problem{a, b}.heldOut())
		require.Equal(t, problem{a, b}.answer(), row.Answer)
		require.True(t, a >= 100 && a <= 999 && b >= 100 && b <= 999)
		require.False(t, seen[row.Prompt])
		seen[row.Prompt] = true
	}
	_, _, err = split(1, 0, 1)
	require.ErrorContains(t, err, "expected 1 to 40000")
	_, _, err = split(1, 1, maxPrompts)
	require.NoError(t, err, "there are enough held-out sums")
}

func TestRunIsDeterministic(t *testing.T) {
	t.Parallel()
	write := func(seed string) map[string][]byte {
		dir := t.TempDir()
		require.NoError(t, run([]string{"-out", dir, "-seed", seed, "-train", "20", "-test", "10", "-demos", "30"}))
		files := map[string][]byte{}
		for _, name := range []string{"train.jsonl", "test.jsonl", "demos.jsonl", "model/tokenizer.json",
			"model/tokenizer_config.json", "model/config.json"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			files[name] = data
		}
		return files
	}
	one, again, two := write("1"), write("1"), write("2")
	require.Equal(t, one, again)
	require.NotEqual(t, one["demos.jsonl"], two["demos.jsonl"])
	require.Equal(t, one["model/tokenizer.json"], two["model/tokenizer.json"])
	require.Equal(t, 30, bytes.Count(one["demos.jsonl"], []byte("\n")))
	require.Contains(t, string(one["demos.jsonl"]), `"<think>`)
	require.ErrorContains(t, run([]string{"surplus"}), "surplus")
}

func TestVocabulary(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(tokenizerFile())
	require.NoError(t, err)
	var file struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.Len(t, file.Model.Vocab, 53)
	ids := map[int]bool{}
	for _, id := range file.Model.Vocab {
		ids[id] = true
	}
	require.Len(t, ids, 53)
	for id, want := range map[int]string{pad: "<pad>", eos: "<eos>", bos: "<bos>", thinkOpen: "<think>",
		thinkClose: "</think>", 5: "0", 21: "Ġ", 22: "Ċ", 52: ")"} {
		require.Equal(t, id, file.Model.Vocab[want], want)
	}
	for _, token := range file.Added {
		require.Equal(t, token.ID <= bos, token.Special, token.Content)
	}
}

// Training can load the generated tokenizer.
func TestTokenizerLoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, run([]string{"-out", dir, "-train", "1", "-test", "1", "-demos", "200"}))
	tok, err := tokenizer.Load(filepath.Join(dir, "model"))
	require.NoError(t, err)
	require.Equal(t, 53, tok.VocabSize())
	require.Equal(t, []int32{eos}, tok.StopIDs())
	ids, err := tok.EncodePrompt("914+807=")
	require.NoError(t, err)
	require.Equal(t, []int32{14, 6, 9, 15, 13, 5, 12, 18}, ids)
	encode := func(text string) []int32 {
		ids, err := tok.Encode(text)
		require.NoError(t, err)
		return ids
	}
	text := "<think>4+7+0=11;1+0+1=2;9+8+0=17</think>1721"
	ids = encode(text)
	require.Len(t, ids, 31)
	require.Equal(t, int32(thinkOpen), ids[0])
	require.Equal(t, text, tok.Decode(append(ids, eos)))
	require.Equal(t, characters, tok.Decode(encode(characters)))
	for _, d := range demonstrations(3, 200) {
		require.Equal(t, d.Response, tok.Decode(encode(d.Response)))
	}
}

// The quickstart's model has 0.795 million parameters.
func TestModelSize(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(modelConfig())
	require.NoError(t, err)
	var c struct {
		Hidden int `json:"hidden_size"`
		Layers int `json:"num_hidden_layers"`
		Heads  int `json:"num_attention_heads"`
		KV     int `json:"num_key_value_heads"`
		Dim    int `json:"head_dim"`
		FFN    int `json:"intermediate_size"`
		Vocab  int `json:"vocab_size"`
	}
	require.NoError(t, json.Unmarshal(data, &c))
	layer := c.Hidden*c.Dim*(2*c.Heads+2*c.KV) + 3*c.Hidden*c.FFN + 2*c.Hidden + 2*c.Dim
	require.Equal(t, 794_624, c.Vocab*c.Hidden+c.Layers*layer+c.Hidden)
}

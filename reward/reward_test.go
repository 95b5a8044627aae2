package reward

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

func input(answer, text string, finish rollout.Finish) Input {
	raw, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return Input{Prompt: &rollout.Prompt{ID: "set:1", Text: "question", Answer: raw}, Text: text, Finish: finish}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	cfg := Default()
	require.NoError(t, cfg.Validate())
	for _, row := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"kind", Config{Kind: "best", Processes: 1, Timeout: 1}, []string{`kind is "best", expected "exact", "prefix" or "command"`}},
		{"all", Config{Kind: Prefix, Think: true, Trim: true, Command: []string{"a", "b"}}, []string{
			`think is true, expected false with kind "prefix"`,
			`trim is true, expected false with kind "prefix"`,
			`command is "a b", expected none with kind "prefix"`,
			"processes is 0, expected 1 or more",
			"timeout is 0, expected more than 0 and at most 86400 seconds",
		}},
		{"no command", Config{Kind: Command, Processes: 1, Timeout: 1}, []string{
			`command is empty, expected a program and its arguments with kind "command"`,
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, strings.Split(row.cfg.Validate().Error(), "\n"))
			_, err := New(row.cfg)
			require.ErrorContains(t, err, "new reward: "+row.want[0])
		})
	}
	_, err := New(Config{Kind: Command, Command: []string{"easyrl-no-such-program"}, Processes: 1, Timeout: 1})
	require.ErrorContains(t, err, `new reward: command: exec: "easyrl-no-such-program"`)
}

func TestExact(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		cfg          Config
		answer, text string
		finish       rollout.Finish
		want, format float64
	}{
		{"equal", Config{}, "1721", "1721", rollout.Stop, 1, 0},
		{"wrong", Config{}, "1721", "1722", rollout.Stop, 0, 0},
		{"cut", Config{}, "1721", "1721", rollout.Length, 0, 0},
		{"space", Config{}, "1721", "1721 ", rollout.Stop, 0, 0},
		{"space trimmed", Config{Trim: true}, " 1721", "1721 \n", rollout.Stop, 1, 0},
		{"both empty", Config{}, "", "", rollout.Stop, 1, 0},
		{"tags count as text", Config{}, "17", "<think>a</think>17", rollout.Stop, 0, 0},
		{"no tags", Config{Think: true}, "17", "17", rollout.Stop, 1, 1},
		{"thought", Config{Think: true}, "1721", "<think>4+7+0=11;1+0+1=2;9+8+0=17</think>1721", rollout.Stop, 1, 1},
		{"thought of nothing", Config{Think: true}, "17", "<think></think>17", rollout.Stop, 1, 1},
		{"thought, wrong", Config{Think: true}, "1872", "<think>8+4+0=12</think>1772", rollout.Stop, 0, 1},
		{"thought, cut", Config{Think: true}, "17", "<think>a</think>17", rollout.Length, 0, 1},
		{"thought, no answer", Config{Think: true}, "17", "<think>17</think>", rollout.Stop, 0, 1},
		{"not closed", Config{Think: true}, "17", "<think>17", rollout.Stop, 0, 0},
		{"not opened", Config{Think: true}, "17", "a</think>17", rollout.Stop, 0, 0},
		{"not leading", Config{Think: true}, "17", " <think>a</think>17", rollout.Stop, 0, 0},
		{"twice", Config{Think: true}, "17", "<think>a</think><think>b</think>17", rollout.Stop, 0, 0},
		{"nested", Config{Think: true}, "17", "<think><think>a</think>17", rollout.Stop, 0, 0},
		{"closed twice", Config{Think: true}, "17", "<think>a</think></think>17", rollout.Stop, 0, 0},
		{"wrong way round", Config{Think: true}, "17", "</think>17<think>", rollout.Stop, 0, 0},
		{"space after thought", Config{Think: true}, "17", "<think>a</think>\n17", rollout.Stop, 0, 1},
		{"space after thought, trimmed", Config{Think: true, Trim: true}, "17", "<think>a</think>\n17", rollout.Stop, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.cfg.Kind, row.cfg.Processes, row.cfg.Timeout = Exact, 1, 1
			f, err := New(row.cfg)
			require.NoError(t, err)
			got, err := f.Score(t.Context(), input(row.answer, row.text, row.finish))
			require.NoError(t, err)
			require.Equal(t, row.want, got.Value)
			if row.cfg.Think {
				require.Equal(t, map[string]float64{"format": row.format}, got.Parts)
			} else {
				require.Nil(t, got.Parts)
			}
		})
	}
}

func TestExactTakesAnswersOfAnyType(t *testing.T) {
	t.Parallel()
	for answer, text := range map[string]string{`43`: "43", `4.50`: "4.50", `true`: "true", `["a",1]`: `["a",1]`, `"x\ny"`: "x\ny"} {
		in := input("", text, rollout.Stop)
		in.Prompt.Answer = json.RawMessage(answer)
		got, err := exact{}.Score(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, 1.0, got.Value, answer)
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		answer, text string
		finish       rollout.Finish
		want         float64
	}{
		{"7,2,6,1", "7,2,6,1", rollout.Stop, 1},
		{"7,2,6,1", "7,2,6,1", rollout.Length, 7.0 / 8},
		{"7,2,6,1", "7,2,6,1,", rollout.Stop, 7.0 / 8},
		{"7,2,6,1", "7,2,6,1,9,9,9,9,9,9", rollout.Length, 7.0 / 8},
		{"7,2,6,1", "7,2", rollout.Stop, 3.0 / 8},
		{"7,2,6,1", "7,3,6,1", rollout.Stop, 2.0 / 8},
		{"7,2,6,1", "8,2,6,1", rollout.Stop, 0},
		{"7,2,6,1", "", rollout.Stop, 0},
		{"", "", rollout.Stop, 1},
		{"", "", rollout.Length, 0},
		{"", "5", rollout.Stop, 0},
		{"äöü", "äö", rollout.Stop, 2.0 / 4},
		{"äöü", "äöü", rollout.Stop, 1},
		{"\ufffd", "\xff", rollout.Stop, 0},
	} {
		got, err := prefix{}.Score(t.Context(), input(row.answer, row.text, row.finish))
		require.NoError(t, err)
		require.Equal(t, Score{Value: row.want}, got, "%+v", row)
	}
}

// Every prefix of every real answer scores its share, and the answer scores 1.
func TestPrefixOnDigitCompletion(t *testing.T) {
	t.Parallel()
	root := os.Getenv("EASYRL_TESTDATA")
	if root == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	f, err := os.Open(filepath.Join(root, "prompts", "digit_completion_test.jsonl"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); rows++ {
		var row struct{ Answer string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		for i := range len(row.Answer) + 1 {
			got, err := prefix{}.Score(t.Context(), input(row.Answer, row.Answer[:i], rollout.Stop))
			require.NoError(t, err)
			want := float64(i) / float64(len(row.Answer)+1)
			if i == len(row.Answer) {
				want = 1
			}
			require.Equal(t, want, got.Value)
		}
	}
	require.Positive(t, rows)
}

func TestInProcessRewardsHeedTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range []Func{exact{}, prefix{}} {
		_, err := f.Score(ctx, input("a", "a", rollout.Stop))
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestComparisonsNeedAnAnswer(t *testing.T) {
	t.Parallel()
	for _, f := range []Func{exact{}, prefix{}} {
		for _, answer := range []string{"", "null"} {
			in := input("", "", rollout.Stop)
			in.Prompt.Answer = json.RawMessage(answer)
			_, err := f.Score(t.Context(), in)
			require.ErrorIs(t, err, ErrNoAnswer)
			require.ErrorContains(t, err, "score prompt set:1")
		}
	}
}

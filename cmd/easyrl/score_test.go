package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/evaluate"
)

// scored is a line that easyrl score writes.
type scored struct {
	ID     any                `json:"id"`
	Score  *float64           `json:"score"`
	Right  bool               `json:"right"`
	Parts  map[string]float64 `json:"parts"`
	Answer string             `json:"answer"`
	Reason string             `json:"reason"`
	Error  string             `json:"error"`
}

func parseScored(t *testing.T, out string) (all []scored) {
	t.Helper()
	for line := range strings.Lines(out) {
		var s scored
		require.NoError(t, json.Unmarshal([]byte(line), &s), line)
		all = append(all, s)
	}
	return all
}

// parseLines decodes the lines of a file from the given one, counted from 0.
func parseLines[T any](t *testing.T, path string, from int) (all []T) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for i, line := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
		if i >= from {
			var v T
			require.NoError(t, json.Unmarshal(line, &v))
			all = append(all, v)
		}
	}
	return all
}

// Regrading a run and its evaluations gives the scores that they recorded. The prompts are
// chats, whose rendered text is not their question.
func TestScoreOfRun(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	model := copyDir(t, filepath.Join(dir, "m"), dir, "chatty")
	write(t, model, "chat_template.jinja", "{% for m in messages %}{{ m['content'] }}:{% endfor %}")
	var prompts strings.Builder
	for i := range 12 {
		fmt.Fprintf(&prompts, `{"prompt":[{"role":"user","content":"%d,1"}],"answer":"%d"}`+"\n", i%10, i%4)
	}
	data := write(t, dir, "chats.jsonl", prompts.String())
	run := trainTiny(t, dir, "run", "run.steps=2", "eval.every=2",
		fmt.Sprintf("model={path=%q,init={config=''}}", model),
		fmt.Sprintf("data.train=%q", data), fmt.Sprintf("data.eval=%q", data),
		`reward={kind="sum",parts={prefix={kind="prefix"},late={kind="overlong",buffer=9,weight=0.5},`+
			`math={kind="math",weight=0.25}}}`)
	toml := filepath.Join(run, "run.toml")
	record := filepath.Join(dir, "eval.jsonl")
	evalJSON(t, toml, "-k", "2", "-out", record)

	steps := []string{filepath.Join(run, "rollouts", "step-000001.jsonl"),
		filepath.Join(run, "rollouts", "step-000002.jsonl")}
	out := filepath.Join(dir, "scores.jsonl")
	code, stdout, errs := command(t, "score", toml, steps[0], "-out", out, steps[1])
	require.Zero(t, code, errs)
	require.Empty(t, stdout)
	got := parseLines[scored](t, out, 0)
	n, total, kinds := 0, 0.0, map[float64]bool{}
	for _, step := range steps {
		for _, g := range parseLines[rollout.Group](t, step, 0) {
			require.Len(t, g.Prompt.Question(), 3, "a recorded chat keeps its question")
			require.Len(t, g.Prompt.Text, 4)
			for k, r := range g.Responses {
				require.Equal(t, fmt.Sprintf("%s/%d", g.Prompt.ID, k+1), got[n].ID)
				require.Equal(t, r.Reward, *got[n].Score)
				require.Equal(t, r.Parts, got[n].Parts)
				n, total, kinds[r.Reward] = n+1, total+r.Reward, true
			}
		}
	}
	require.Len(t, got, n)
	require.Greater(t, len(kinds), 2, "the test sees different scores")
	require.Contains(t, errs, fmt.Sprintf("scored %d, mean score %.4f, right ", n, total/float64(n)))
	require.Equal(t, 1, strings.Count(errs, "\n"))

	for path, from := range map[string]int{record: 1, filepath.Join(run, "heldout", "step-000002.jsonl"): 0} {
		code, stdout, errs := command(t, "score", toml, "-data", path)
		require.Zero(t, code, errs)
		got := parseScored(t, stdout)
		n := 0
		for _, result := range parseLines[evaluate.Result](t, path, from) {
			require.Len(t, result.Question, 3)
			for _, r := range result.Responses {
				require.Equal(t, scored{ID: got[n].ID, Score: &r.Reward, Right: r.Right, Parts: r.Parts,
					Answer: r.Answer, Reason: got[n].Reason}, got[n])
				n++
			}
		}
		require.Len(t, got, n, path)
		require.Positive(t, n, path)
	}
}

// Without files, and for the name -, the verb reads standard input.
func TestScoreOfStandardInput(t *testing.T) {
	t.Parallel()
	const in = `{"id":"a","prompt":"1+1=","answer":"2","response":"The answer is 2."}

{"prompt":"1+1=","answer":"2","response":"The answer is 3.","finish":"length","length":9}
`
	other := write(t, t.TempDir(), "other.jsonl", `{"prompt":"1+1=","answer":"2","response":"2"}`)
	for _, test := range []struct {
		args []string
		ids  []any
	}{
		{nil, []any{"a", "stdin:3"}},
		{[]string{"-"}, []any{"a", "stdin:3"}},
		{[]string{other, "-"}, []any{other + ":1", "a", "stdin:3"}},
		{[]string{"-data", "-", other}, []any{"a", "stdin:3", other + ":1"}},
	} {
		var out, errs bytes.Buffer
		require.Zero(t, runWith(&out, &errs, in, append([]string{"score", "-reward", "math"}, test.args...)...),
			errs.String())
		var ids []any
		for _, s := range parseScored(t, out.String()) {
			require.Equal(t, s.ID != "stdin:3", s.Right)
			require.Equal(t, s.Right, *s.Score == 1)
			require.Equal(t, s.Right, s.Reason == "", "a reason for all but right responses")
			ids = append(ids, s.ID)
		}
		require.Equal(t, test.ids, ids)
		n := len(ids)
		require.Equal(t, fmt.Sprintf("scored %d, mean score %.4f, right %d, errors 0\n", n, float64(n-1)/float64(n),
			n-1), errs.String())
	}
}

// Each line says in one phrase why a response is not right.
func TestScoreReasons(t *testing.T) {
	t.Parallel()
	const pens, form = "Tom has 3 boxes of 7 pens. How many pens are there?",
		"Write $0.25$ as a fraction in lowest terms."
	rows := []struct{ prompt, answer, response, reason string }{
		{pens, "21", `\boxed{21}`, ""},
		{pens, "21", "<answer>21</answer>", ""},
		{pens, "21", "So there are 21.", "no answer is marked"},
		{pens, "21", "<answer>21", "the last mark is cut off"}, // as by a stop string that is not kept
		{pens, "21", `\boxed{21}. No: \boxed{2`, "the last mark is cut off"},
		{pens, "21", "The answer is", "the last mark is cut off"},
		{pens, "21", `<think>\boxed{21}`, "the reasoning does not end"},
		{pens, "21", `\boxed{21 +}`, "the marked text is no whole answer"},
		{pens, "21", `\boxed{ }`, "no answer"},
		{pens, "21", `\boxed{21=22}`, "several answers"},
		{pens, "21", `\boxed{22}`, "another value"},
		{pens, "21", `\boxed{21 \text{ kg}}`, "another unit"},
		{pens, "21", `\boxed{3 \cdot 7}`, "unfinished: it still has to be evaluated or solved"},
		{pens, "21", `\boxed{\text{more than } 21}`, "the words around the value change it"},
		{pens, "21", "One possible answer is 21.", "the words around the value change it"},
		{pens, "21", `\boxed{21 \text{ zebras quux}}`, "words that neither the question nor a plain answer uses"},
		{form, `\frac14`, `\boxed{0.25}`, "repeats the question"},
		{"Write 5 in base 2.", "101", `\boxed{101_3}`, "another form than the question asks for"},
	}
	var in strings.Builder
	for _, row := range rows {
		line, err := json.Marshal(map[string]string{"prompt": row.prompt, "answer": row.answer,
			"response": row.response})
		require.NoError(t, err)
		in.Write(append(line, '\n'))
	}
	var out, errs bytes.Buffer
	require.Zero(t, runWith(&out, &errs, in.String(), "score", "-reward", "math"), errs.String())
	for i, s := range parseScored(t, out.String()) {
		require.Equal(t, rows[i].reason, s.Reason, rows[i].response)
	}
}

// A response that the reward's program cannot score is an error of its own.
func TestScoreWithBadReward(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	for _, mode := range []string{"once-crash", "once-reports"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			in := write(t, t.TempDir(), "in.jsonl",
				strings.Repeat(`{"prompt":"1,0","answer":"1","response":"1"}`+"\n", 5)+
					`{"prompt":"7,0","answer":"1","response":"1"}`+"\n"+
					`{"prompt":"8,0","answer":"1","response":"1"}`+"\n")
			code, out, errs := command(t, append([]string{"score", in}, rewardSettings(mode)...)...)
			require.Equal(t, exitFailed, code, errs)
			got := parseScored(t, out)
			require.Len(t, got, 7)
			for i, s := range got {
				require.Equal(t, fmt.Sprintf("%s:%d", in, i+1), s.ID)
				require.Equal(t, i == 5, s.Score == nil)
				require.Equal(t, i == 5, s.Error != "")
			}
			rows := strings.Split(errs, "\n")
			require.Equal(t, "scored 6, mean score 0.5000, right 0, errors 1", rows[0])
			require.True(t, strings.HasPrefix(rows[1],
				"error: 1 of 7 responses have no score; the first is "+in+":6: reward command env: "), errs)
			require.Len(t, rows, 3)
		})
	}
}

func TestBadScores(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	good := write(t, dir, "good.jsonl", `{"prompt":"1","answer":"2","response":"2"}`+"\n")
	before := files(t, dir)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{good}, "score: no reward given, expected RUN.toml or -reward KIND (see easyrl score -h)"},
		{[]string{good, "-set", "rollout.max_tokens=5"}, "score: no reward given, expected RUN.toml or -reward KIND"},
		{[]string{good, "-reward", "bogus"}, `-set: reward.kind is "bogus", expected one of "exact"`},
		{[]string{good, "-reward", "command"}, "reward.command is empty, expected a program and its arguments"},
		{[]string{good, "-set", `reward={kind="command",command=["easyrl-no-such-program"]}`},
			`exec: "easyrl-no-such-program"`},
		{[]string{good, "-reward", "math", "-think"}, "reward.think is set, but does not apply to kind \"math\""},
		{[]string{in("none.toml"), good}, "none.toml: no such file"},
		{[]string{in("no.toml"), good}, "no.toml:1"},
		{[]string{"-reward", "math", good, in("none")}, "none: no such file"},
		{[]string{"-reward", "math", good, dir}, "is a folder, expected a file of JSON lines"},
		{[]string{"-reward", "math", good, "-out", good}, "-out " + good + " is also read, expected another file"},
		{[]string{"-reward", "math", good, "-out", dir}, "is a directory"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(test.args, " "), dir, ""), func(t *testing.T) {
			code, out, errs := command(t, append([]string{"score"}, test.args...)...)
			require.Equal(t, exitUsage, code, errs)
			require.Empty(t, out)
			require.Contains(t, errs, test.want)
			require.Equal(t, before, files(t, dir))
		})
	}
	code, out, errs := command(t, "score", in("run.toml"), good, in("cut.jsonl"))
	require.Equal(t, exitUsage, code)
	require.Len(t, parseScored(t, out), 1, "lines before the malformed one are scored")
	requireOneLine(t, errs, `cut.jsonl:1: missing "response"`)
}

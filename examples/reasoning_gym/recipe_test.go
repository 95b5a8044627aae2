// Package gym tests the recipe for reasoning-gym.
package gym

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/reward/wire"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run"
)

// TestMain runs the tests or, as the reward program of TestEntriesPassUnchanged, writes
// each request's source and answer to a file.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "save" {
		os.Exit(m.Run())
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked wire.Request
		if json.Unmarshal(lines.Bytes(), &asked) != nil ||
			os.WriteFile(os.Args[2], append([]byte(asked.Source+" "), asked.Answer...), 0o600) != nil {
			os.Exit(1)
		}
		fmt.Printf(`{"id":%d,"score":1}`+"\n", asked.ID)
	}
}

// overlay returns the shipped run with the overlay.
func overlay(t *testing.T) *configs.Resolved {
	t.Helper()
	r, err := run.Load(configs.TrainTask, []string{"../../configs/gsm8k-qwen3.toml", "run.toml"}, nil)
	require.NoError(t, err)
	return r
}

// The overlay names files of this folder.
func TestOverlay(t *testing.T) {
	t.Parallel()
	r := overlay(t)
	require.Equal(t, reward.Command, r.Reward.Kind)
	require.Equal(t, "examples/reasoning_gym/venv/bin/python", r.Reward.Command[0])
	require.FileExists(t, filepath.Join("..", "..", r.Reward.Command[1]))
	program, err := os.ReadFile("reward.py")
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(program, []byte("\n")), 25, "reward.py stays short")
}

// Entries reach the reward program byte for byte, apart from space between tokens.
func TestEntriesPassUnchanged(t *testing.T) {
	t.Parallel()
	r := overlay(t)
	entries := []string{
		`{"question":"q","answer":"#### 5 \\boxed{6}","metadata":{"n":12345678901234567890123456789,"x":1.10,` +
			`"y":-0.0,"z":1e-7,"e":1E+30}}`,
		`{"question":"ü <b>&</b> \u2028 ❌ \ud83d\ude00 ` +
			`😀","answer":"<answer>","metadata":{"a":{"b":[[],{},[1,[2,null]],true,""]},"a":1}}`,
		`[1,2]`, `"#### 5"`, `12345678901234567890123456789`,
	}
	for i, entry := range entries {
		dir := t.TempDir()
		file, saved := filepath.Join(dir, "train.jsonl"), filepath.Join(dir, "saved")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"prompt": "p", "answer": %s, "source": "env"}`, entry),
			0o600))
		prompts, err := data.ReadAll([]string{file},
			data.Options{PromptKey: r.Data.PromptKey, AnswerKey: r.Data.AnswerKey, SourceKey: r.Data.SourceKey})
		require.NoError(t, err)
		c := reward.Default()
		c.Kind, c.Command, c.CallConfig.Concurrency = reward.Command, []string{os.Args[0], "save", saved}, 1
		require.Equal(t, 1.0, grader(t, c)(&prompts[0][0], "x"))
		got, err := os.ReadFile(saved)
		require.NoError(t, err)
		require.Equal(t, "env "+entry, string(got), "entry %d", i)
	}
}

// grader returns a function that scores responses.
func grader(t *testing.T, c reward.Config) func(p *rollout.Prompt, response string) float64 {
	t.Helper()
	scorer, err := reward.New(c, 512)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, scorer.Close()) })
	return func(p *rollout.Prompt, response string) float64 {
		score, err := scorer.Score(t.Context(),
			reward.Input{Prompt: p, Text: response, Finish: rollout.Stop, Length: 1})
		require.NoError(t, err)
		return score.Value
	}
}

// python returns a function that runs python3 with the stand-in for reasoning-gym in
// testdata. It skips the test without python3 and on Windows.
func python(t *testing.T) func(stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("guard.py needs POSIX signals")
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	return func(stdin string, args ...string) (string, string, error) {
		cmd := exec.CommandContext(t.Context(), path, args...) //nolint:gosec // of this test
		cmd.Env = append(os.Environ(), "PYTHONPATH=testdata", "PYTHONDONTWRITEBYTECODE=1")
		cmd.Stdin = strings.NewReader(stdin)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return stdout.String(), stderr.String(), err
	}
}

// impatient runs reward.py with a short time limit.
const impatient = `import guard, runpy; guard.SECONDS = 0.1; runpy.run_path("reward.py", run_name="__main__")`

const sum107 = `{"question":"100+7=","answer":"107","metadata":{"sum":107,"source_index":0}}`

// The reward program replies to every request, whatever the environment does. It reports
// each kind of exception once.
func TestRewardProgram(t *testing.T) {
	t.Parallel()
	call := python(t)
	type row struct {
		name, source, response string
		want                   float64
		said                   string // on standard error, once
	}
	tests := []row{
		{"marked answer", "sums", "<think>1</think> <answer>107</answer> bye", 1, ""},
		{"last marked answer", "sums", "<answer>1</answer><answer>\n 107 \n</answer>", 1, ""},
		{"earlier marked answer", "sums", "<answer>107</answer><answer>1</answer>", 0.01, ""},
		{"nested marks", "sums", "write <answer> like <answer>107</answer>", 1, ""},
		{"last line", "sums", "100+7 is\n107\n", 1, ""},
		{"other line", "sums", "107\nis it", 0.01, ""},
		{"open mark", "sums", "<answer>107", 0.01, ""},
		{"no text", "sums", " \n", 0.01, ""},
		{"unicode line", "sums", "❌\u2028107", 1, ""},
		{"longest answer", "sums", strings.Repeat("1", 8192), 0.01, ""},
		{"too long answer", "sums", strings.Repeat("1", 8193), 0,
			"sums: ValueError: the answer has 8193 characters, expected at most 8192"},
		{"exception", "wide", "one", 0, "wide: ValueError: could not convert string to float: 'one'"},
		{"the same exception", "wide", "two", 0, ""},
		{"not a number", "wide", "nan", 0, ""},
		{"infinite", "wide", "inf", 0, ""},
		{"below range", "wide", "-3", 0, ""},
		{"above range, printed", "wide", "1.5", 1, "1.5\n"},
		{"in range", "wide", "0.25", 0.25, ""},
		{"endless", "slow", "wait", 0, "slow: TimeoutError: no score in 0.1 seconds of processor time"},
		{"after endless", "slow", "107", 1, ""},
		{"literal", "literals", "[1,0,7]", 1, ""},
		{"arithmetic", "literals", "[2-1,0,7]", 1, ""},
		{"code", "literals", "entry['answer']", 0, "literals: ValueError: the answer is code"},
		{"attribute", "literals", "''.__class__", 0, ""},
		{"import", "literals", "__import__('os').abort()", 0, ""},
		{"nested code", "literals", "(lambda: entry['answer'])()", 0, ""},
		{"deep", "literals", strings.Repeat("(", 8000), 0, "literals: SyntaxError: too many nested parentheses"},
	}
	if runtime.GOOS == "linux" { // elsewhere the system does not limit memory
		tests = append(tests, row{"memory", "large", "large", 0, "large: MemoryError: "},
			row{"large literal", "literals", "'1'*10**10", 0, "literals: MemoryError: "})
	}
	var requests []byte
	kinds := 0
	for i, test := range tests {
		line, err := wire.Line(wire.Request{ID: int64(i), Source: test.source, Answer: json.RawMessage(sum107),
			Response: test.response})
		require.NoError(t, err)
		requests = append(requests, line...)
		if strings.HasPrefix(test.said, test.source+": ") {
			kinds++
		}
	}
	unknown, err := wire.Line(wire.Request{ID: int64(len(tests)), Source: "sudoku", Answer: json.RawMessage(sum107)})
	require.NoError(t, err)
	stdout, stderr, err := call(string(requests)+string(unknown), "-c", impatient)
	require.NoError(t, err, stderr)
	lines := strings.SplitAfter(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, len(tests)+1)
	for i, test := range tests {
		got, err := wire.ReadLine([]byte(lines[i]), int64(i))
		require.NoError(t, err, test.name)
		require.Empty(t, got.Error, test.name)
		require.Equal(t, test.want, *got.Score, test.name)
		if test.said != "" {
			require.Equal(t, 1, strings.Count(stderr, test.said), test.name)
		}
	}
	got, err := wire.ReadLine([]byte(lines[len(tests)]), int64(len(tests)))
	require.NoError(t, err)
	require.Equal(t, "ValueError: Dataset 'sudoku' not registered", got.Error, "a wrong source is no answer's fault")
	require.Equal(t, kinds, strings.Count(stderr, "; the answer scores 0\n"), stderr)
}

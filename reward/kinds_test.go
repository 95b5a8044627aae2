package reward

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

func value(t *testing.T, f Func, in Input) float64 {
	t.Helper()
	score, err := f.Score(t.Context(), in)
	require.NoError(t, err)
	return score.Value
}

func TestMath(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		answer any
		text   string
		want   float64
	}{
		{"18", "So it is 18.", 0}, // no mark
		{"18", "So the answer is 18.", 1},
		{18, `\boxed{18}`, 1},
		{18.5, "The answer is 37/2.", 1},
		{"She has 9 left.\n#### 9", "9", 1},
		{[]string{"1/3", "one third"}, `$\frac{1}{3}$`, 1},
		{"18", "So it is 19.", 0},
		{"18", "", 0},
	} {
		raw, err := json.Marshal(row.answer)
		require.NoError(t, err)
		in := Input{Prompt: &rollout.Prompt{ID: "set:1", Answer: raw}, Text: row.text}
		require.InDelta(t, row.want, value(t, NewMath(), in), 0, "%v, %q", row.answer, row.text)
	}
	_, err := NewMath().Score(t.Context(), Input{Prompt: &rollout.Prompt{ID: "set:1"}, Text: "18"})
	require.ErrorIs(t, err, ErrNoAnswer)
	for _, none := range []string{"null", `""`, "[]", `[""]`} {
		for _, f := range []Func{NewMath(), NewGSM8K(), expression{regexp.MustCompile("(a*)"), false}} {
			_, err := f.Score(t.Context(),
				Input{Prompt: &rollout.Prompt{ID: "set:1", Answer: json.RawMessage(none)}, Text: ""})
			require.ErrorIs(t, err, ErrNoAnswer, none)
		}
	}
	in := Input{Prompt: &rollout.Prompt{ID: "set:1", Answer: json.RawMessage(`["", "18"]`)}, Text: "18"}
	require.InDelta(t, 1, value(t, NewMath(), in), 0, "an empty item is no answer")
	in.Text = ""
	require.InDelta(t, 0, value(t, expression{regexp.MustCompile("(a*)"), false}, in), 0)
}

// Without a mark, the last number counts if that is configured, or in evaluations alone.
func TestAnyMarks(t *testing.T) {
	t.Parallel()
	in := input("18", "So it is 18.", rollout.Stop)
	for _, kind := range []string{Math, GSM8K} {
		strict, err := New(one(Term{Kind: kind}), 10)
		require.NoError(t, err)
		lenient, err := New(one(Term{Kind: kind, MathConfig: MathConfig{AnyMarks}}), 10)
		require.NoError(t, err)
		require.InDelta(t, 0, value(t, strict, in), 0, kind)
		require.InDelta(t, 1, value(t, lenient, in), 0, kind)
		require.InDelta(t, 1, value(t, ForEvaluation(strict, AnyMarks), in), 0, kind)
		require.InDelta(t, 0, value(t, ForEvaluation(strict, ""), in), 0, kind)
	}
	sum, err := NewSum([]Component{{"math", 2, NewMath()}})
	require.NoError(t, err)
	require.InDelta(t, 2, value(t, ForEvaluation(sum, AnyMarks), in), 0)
}

// A prompt that opens the reasoning makes a response that does not end it give no answer.
func TestOpenThought(t *testing.T) {
	t.Parallel()
	in := input("18", `It may be \boxed{18}, or`, rollout.Length)
	require.InDelta(t, 1, value(t, NewMath(), in), 0)
	in.Prompt.Text += "<think>\n"
	require.InDelta(t, 0, value(t, NewMath(), in), 0)
	in.Text = `Yes.</think>\boxed{18}`
	require.InDelta(t, 1, value(t, NewMath(), in), 0)
}

func TestGSM8K(t *testing.T) {
	t.Parallel()
	far := strings.Repeat("x", 301)
	for _, row := range []struct {
		answer, text string
		want         float64
	}{
		{"18", "16 - 3 = 13\n#### 18", 1},
		{"18", "#### 17\nwait\n#### 18", 1},
		{"18", "#### 18\n#### none", 0}, // the last mark decides
		{"18", "#### 18\n#### 19", 0},
		{"18", "#### 18 or 19", 0},
		{"3500", "#### 35,00", 0},
		{"18", "#### 18\nSo it is \\boxed{19}.", 0},
		{"18", "<think>\n#### 18", 0},
		{"18", "#### 18.", 1},
		{"18", "#### 18.00", 1},
		{"72", "Natalia sold 48/2 = 24 clips in May.\n#### 72", 1},
		{"solution\n#### 1,080", "#### 1080", 1},
		{"1,080", "#### 1,080", 1},
		{"-5", "#### -5", 1},
		{"5", "#### -5", 0},
		{"18", "#### 19", 0},
		{"18", "#### $18", 0}, // no question about money
		{"18", "####18", 1},
		{"18", "The answer is 18.", 1},
		{"18", "So she has 18 eggs.", 0},
		{"18", "\\boxed{18} eggs", 1},
		{"18", "\\boxed{18} and \\boxed{1", 0},
		{"18", "18 eggs for 3 people", 0},
		{"18", "none, none.", 0},
		{"18", "", 0},
		{"18", "<answer>18</answer>", 1}, // a stop string stays in the text
		{"18", "<answer>18", 0},
		{"18", "#### 18\n" + far, 1},
		{"18", far + "#### 18", 1},
	} {
		in := input(row.answer, row.text, rollout.Stop)
		require.InDelta(t, row.want, value(t, NewGSM8K(), in), 0, row.text)
	}
	score, err := NewGSM8K().Score(t.Context(), input("1", "#### 2", rollout.Stop))
	require.NoError(t, err)
	require.Equal(t, Score{Parts: map[string]float64{"answered": 1}, Verdict: Wrong, Answer: "2",
		Reason: "another value"}, score)
}

func TestRegex(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind         string
		pattern      string
		answer, text string
		want         float64
	}{
		{Regex, `^\d+$`, "", "42", 1},
		{Regex, `^\d+$`, "", "42!", 0},
		{Regex, `(?i)answer: *(.+)`, "blue", "Answer: red\nanswer:  blue ", 1},
		{Regex, `(?i)answer: *(.+)`, "red", "Answer: red\nanswer: blue", 0},
		{Regex, `\[(.*?)\]`, "5", "The length is [5.0].", 0},
		{Math, `\[(.*?)\]`, "5", "The length is [5.0].", 1},
		{Math, `\[(.*?)\]`, "1/2", `[$\frac{2}{4}$]`, 1},
		{Math, `\[(.*?)\]`, "2", `[$\sqrt{4}$]`, 0},
		{Regex, `(x*)`, "x", "ax", 0}, // the last match is empty
		{Regex, `(x+)`, "x", "ax", 1},
	} {
		f, err := New(one(Term{Kind: row.kind, RegexConfig: RegexConfig{Pattern: row.pattern}}), 10)
		require.NoError(t, err)
		require.InDelta(t, row.want, value(t, f, input(row.answer, row.text, rollout.Stop)), 0, "%v %q",
			row.pattern, row.text)
	}
	for pattern, want := range map[string]string{
		"": "pattern is empty", "(": "missing closing )", "(a)(b)": "with 2 groups",
	} {
		_, err := NewRegex(RegexConfig{Pattern: pattern})
		require.ErrorContains(t, err, want)
	}
	_, err := New(one(Term{Kind: Math, RegexConfig: RegexConfig{Pattern: "a"}}), 10)
	require.ErrorContains(t, err, "without a group")
}

// Equal answers are counted as one. Right ones are equal in any form.
func TestAnswersToCount(t *testing.T) {
	t.Parallel()
	regex, err := New(one(Term{Kind: Math, RegexConfig: RegexConfig{Pattern: `\[(.*?)\]`}}), 10)
	require.NoError(t, err)
	letters, err := NewRegex(RegexConfig{Pattern: `\[(.*?)\]`})
	require.NoError(t, err)
	for name, row := range map[string]struct {
		f         Func
		want      string
		same      []string
		different []string
	}{
		"math": {NewMath(), `2\sqrt{2}`, []string{`\boxed{2\sqrt{2}}`, `The answer is $\sqrt{8}$.`},
			[]string{`\boxed{3}`, `\boxed{-3}`}},
		"wrong": {NewMath(), "7", []string{`\boxed{1/2}`, "The answer is 0.5.", `$x = \frac{1}{2}$`},
			[]string{"7", "8"}},
		"gsm8k": {NewGSM8K(), "1080", []string{"#### 1,080", "#### 1080.00"}, []string{"#### 108"}},
		"regex": {regex, "1/2", []string{"[0.5]", `[\frac12]`}, []string{"[2]"}},
		"text":  {letters, "blue", []string{"[ blue]", "[red] [blue]"}, []string{"[0.5]", "[red]"}},
		"exact": {exact{think: true}, "5", []string{"5", "<think>a</think>5"}, []string{"6"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answerOf := func(text string) string {
				score, err := row.f.Score(t.Context(), input(row.want, text, rollout.Stop))
				require.NoError(t, err)
				require.NotEmpty(t, score.Answer, text)
				return score.Answer
			}
			for _, text := range row.same {
				require.Equal(t, answerOf(row.same[0]), answerOf(text), text)
			}
			for _, text := range row.different {
				require.NotEqual(t, answerOf(row.same[0]), answerOf(text), text)
			}
		})
	}
	for _, f := range []Func{NewMath(), NewGSM8K(), regex, exact{think: true}} {
		score, err := f.Score(t.Context(), input("5", "<think>5", rollout.Stop))
		require.NoError(t, err)
		require.Empty(t, score.Answer, "the response gives no answer")
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	think := DefaultFormat()
	both := FormatConfig{Tags: []string{"think", "answer"}, Start: true}
	for _, row := range []struct {
		cfg  FormatConfig
		text string
		want float64
	}{
		{think, "<think>a</think>b", 1},
		{think, "\n<think>\na\n</think>", 1},
		{think, "<think></think>b", 1},
		{think, "<think>a <b> c</think>d", 1},
		{think, "a<think>b</think>", 0},
		{think, "<think>a", 0},
		{think, "a</think>b", 0},
		{think, "</think><think>", 0},
		{think, "<think><think>a</think>", 0},
		{think, "<think>a</think></think>", 0},
		{think, "", 0},
		{both, "<think>a</think> <answer>b</answer>", 1},
		{both, "<answer>b</answer><think>a</think>", 0},
		{both, "<think>a<answer>b</answer></think>", 0},
		{both, "<think>a</think>", 0},
	} {
		f, err := NewFormat(row.cfg)
		require.NoError(t, err)
		require.InDelta(t, row.want, value(t, f, Input{Text: row.text}), 0, row.text)
	}
	for _, tags := range [][]string{nil, {""}, {"<a>"}, {"a", "a"}} {
		_, err := NewFormat(FormatConfig{Tags: tags})
		require.Error(t, err)
	}
}

func TestOverlong(t *testing.T) {
	t.Parallel()
	f, err := NewOverlong(OverlongConfig{Buffer: 20}, 100)
	require.NoError(t, err)
	for length, want := range map[int]float64{0: 0, 79: 0, 80: 0, 81: -0.05, 90: -0.5, 99: -0.95, 100: -1,
		101: -1, 1000: -1} {
		require.InDelta(t, want, value(t, f, Input{Length: length}), 1e-12, length)
	}
	for _, cfg := range []OverlongConfig{{}, {Buffer: -1}, {Buffer: 11}} {
		_, err := NewOverlong(cfg, 10)
		require.Error(t, err)
	}
}

func TestRepetition(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		words int
		text  string
		want  float64
	}{
		{2, "a b c d", 0},
		{2, "a A\na a  a", -0.75},
		{2, "1 2 3 1 2 3", -0.4},
		{3, "1 2 3 1 2 3", -0.25},
		{3, "1 2", 0},
		{1, "", 0},
		{1, "ab a b", 0},
		{2, "ab c a bc", 0},
	} {
		f, err := NewRepetition(RepetitionConfig{Words: row.words})
		require.NoError(t, err)
		require.InDelta(t, row.want, value(t, f, Input{Text: row.text}), 1e-12, row.text)
	}
	for _, cfg := range []RepetitionConfig{{}, {Words: -1}} {
		_, err := NewRepetition(cfg)
		require.Error(t, err)
	}
}

// closable is a reward that fails or is closed.
type closable struct {
	err    error
	closed int
}

func (c *closable) Score(context.Context, Input) (Score, error) {
	return Score{Value: 2, Parts: map[string]float64{"x": 3}}, c.err
}

func (c *closable) Close() error {
	c.closed++
	return nil
}

func TestSum(t *testing.T) {
	t.Parallel()
	inner := &closable{}
	f, err := NewSum([]Component{{"right", 1, NewMath()}, {"other", -0.5, inner}})
	require.NoError(t, err)
	score, err := f.Score(t.Context(), input("18", "18", rollout.Stop))
	require.NoError(t, err)
	require.Equal(t, Score{Value: 0, Parts: map[string]float64{"right": 1, "other": 2, "other/x": 3}, Verdict: Right,
		Answer: "18"}, score)
	inner.err = errors.New("down")
	_, err = f.Score(t.Context(), input("18", "18", rollout.Stop))
	require.EqualError(t, err, "component other: down")
	require.NoError(t, f.(io.Closer).Close())
	require.Equal(t, 1, inner.closed)

	for _, row := range []struct {
		weights [2]float64
		want    string
	}{
		{[2]float64{MaxScore, -MaxScore / 2}, ""},
		{[2]float64{2 * MaxScore, -MaxScore / 2},
			"component right with weight 2e+06 is 2e+06, expected a number from -1000000 to 1000000"},
		{[2]float64{1, -1e300},
			"component other with weight -1e+300 is -2e+300, expected a number from -1000000 to 1000000"},
		{[2]float64{1, math.MaxFloat64},
			"component other with weight 1.7976931348623157e+308 is +Inf, expected a number from -1000000 to 1000000"},
		{[2]float64{MaxScore, MaxScore / 2}, "the sum is 2e+06, expected a number from -1000000 to 1000000"},
	} {
		f, err := NewSum([]Component{{"right", row.weights[0], NewMath()}, {"other", row.weights[1], &closable{}}})
		require.NoError(t, err)
		if _, err = f.Score(t.Context(), input("18", "18", rollout.Stop)); row.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, row.want)
		}
	}

	_, err = NewSum(nil)
	require.ErrorContains(t, err, "no components")
	_, err = NewSum([]Component{{"a b", 1, inner}, {"c", 1, nil}, {"c", 1, inner}})
	require.ErrorContains(t, err, `named "a b"`)
	require.ErrorContains(t, err, `"c" has no reward`)
	require.ErrorContains(t, err, `component name "c" is used twice`)
}

// Compares with the reward functions of other projects that have a counterpart here or
// in package grade. Exceptions are rows from AReaL that expect its limitations, not the
// right answer.
func TestOtherProjects(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("EASYRL_TESTDATA")
	if folder == "" {
		t.Skip("EASYRL_TESTDATA is not set")
	}
	data, err := os.ReadFile(filepath.Join(folder, "conformance", "reward_functions_misc.jsonl"))
	require.NoError(t, err)
	checked := 0
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var row struct {
			Fn       any
			Args     []json.RawMessage
			Kwargs   map[string]any
			Expected any
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		name, _ := row.Fn.(string)
		if factory, ok := row.Fn.(map[string]any); ok {
			name, _ = factory["factory"].(string)
		}
		if verify, ok := counterparts()[name]; ok && verify(t, i+1, row.Args, row.Kwargs, row.Expected) {
			checked++
		}
	}
	require.Positive(t, checked)
	t.Logf("%d rows have a counterpart", checked)
}

type counterpart func(t *testing.T, line int, args []json.RawMessage, kwargs map[string]any, expected any) bool

func counterparts() map[string]counterpart {
	return map[string]counterpart{
		"think_format_reward":          verifyThink,
		"get_soft_overlong_punishment": verifyOverlong,
		"get_repetition_penalty_reward": func(t *testing.T, line int, args []json.RawMessage, kwargs map[string]any,
			expected any) bool {
			return verifyRepetition(t, line, args, expected)
		},
		"gsm8k_reward_fn": verifyCompletion, "geometry3k_reward_fn": verifyCompletion, "worker.verify": verifyWorker,
		"think_parser.parse": verifyFinal, "maybe_think_parser.parse": verifyFinal,
		"think_parser_with_extractor.parse": verifyFinal,
		"format_reward[0]":                  verifyNeMo,
	}
}

type message struct{ Content string }

func decodeArg[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(raw, &v))
	return v
}

func verifyThink(t *testing.T, line int, args []json.RawMessage, _ map[string]any, expected any) bool {
	f, err := NewFormat(DefaultFormat())
	require.NoError(t, err)
	for k, m := range decodeArg[[][]message](t, args[0]) {
		require.InDelta(t, expected.([]any)[k], value(t, f, Input{Text: m[0].Content}), 0, "line %d", line)
	}
	return true
}

func verifyOverlong(t *testing.T, line int, args []json.RawMessage, _ map[string]any, expected any) bool {
	f, err := NewOverlong(OverlongConfig{Buffer: 20}, 100)
	require.NoError(t, err)
	for k, ids := range decodeArg[[][]int](t, args[0]) {
		require.InDelta(t, expected.([]any)[k], value(t, f, Input{Length: len(ids)}), 1e-6, "line %d", line)
	}
	return true
}

func verifyRepetition(t *testing.T, line int, args []json.RawMessage, expected any) bool {
	words := 2
	if line == 5 || line == 6 {
		words = 3
	}
	f, err := NewRepetition(RepetitionConfig{Words: words})
	require.NoError(t, err)
	for k, ids := range decodeArg[[][]json.Number](t, args[0]) {
		var text []string
		for _, id := range ids {
			text = append(text, id.String())
		}
		want := expected.([]any)[k]
		if about, ok := want.(map[string]any); ok {
			want = about["approx"]
		}
		require.InDelta(t, want, value(t, f, Input{Text: strings.Join(text, " ")}), 1e-6, "line %d", line)
	}
	return true
}

func verifyCompletion(t *testing.T, line int, _ []json.RawMessage, kwargs map[string]any, expected any) bool {
	text, _ := kwargs["completions"].(string)
	want, _ := kwargs["answer"].(string)
	if _, marked := grade.Extract(text); !marked || text == `[$\sqrt{4}$]` { // prose, or still to be evaluated
		expected = 0.0
	}
	require.InDelta(t, expected, value(t, NewMath(), input(want, text, rollout.Stop)), 0, "line %d: %q", line, text)
	return true
}

func verifyWorker(t *testing.T, line int, args []json.RawMessage, _ map[string]any, expected any) bool {
	text, want := decodeArg[string](t, args[0]), decodeArg[string](t, args[1])
	switch {
	case strings.Contains(want, "sqrt(2)"): // not supported as plain text there
		expected = 1.0
	case line == 50: // a power and a root are left to evaluate
		expected = 0.0
	}
	require.InDelta(t, expected, number(grade.Correct(text, want)), 0, "line %d: %q %q", line, text, want)
	return true
}

func verifyFinal(t *testing.T, line int, args []json.RawMessage, _ map[string]any, expected any) bool {
	require.Equal(t, expected, strings.TrimSpace(grade.Final(decodeArg[string](t, args[0]))), "line %d", line)
	return true
}

// verifyNeMo weighs the first tag with 1/4 and the second with 3/4, as a weighted sum of
// two formats.
func verifyNeMo(t *testing.T, line int, args []json.RawMessage, kwargs map[string]any, expected any) bool {
	first, second := "think", "answer"
	if tag, ok := kwargs["think_tag"].(string); ok {
		first, second = tag, kwargs["answer_tag"].(string)
	}
	a, err := NewFormat(FormatConfig{Tags: []string{first}})
	require.NoError(t, err)
	b, err := NewFormat(FormatConfig{Tags: []string{second}})
	require.NoError(t, err)
	f, err := NewSum([]Component{{first, 0.25, a}, {second, 0.75, b}})
	require.NoError(t, err)
	require.InDelta(t, expected, value(t, f, Input{Text: decodeArg[string](t, args[1])}), 0, "line %d", line)
	return true
}

// Every kind in Kinds has existing keys and a valid example that can be built. A prompt
// without an answer to compare with gets no score.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			r := k.Example()
			require.Equal(t, k.Name, r.Kind)
			require.Regexp(t, `^[a-z][^\n]*\.$`, k.About)
			if r.Kind == Command {
				r.Command = []string{self}
			}
			require.NoError(t, (&Config{Rule: r}).Validate(10))
			s, err := New(Config{Rule: r}, 10)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			for _, answer := range []string{"", "null", "[]", `""`} {
				if r.Lacks(json.RawMessage(answer)) {
					_, err := s.Score(t.Context(), Input{Prompt: &rollout.Prompt{Answer: json.RawMessage(answer)}})
					require.ErrorIs(t, err, ErrNoAnswer, answer)
				}
			}
		})
	}
}

// Every key belongs to a kind, and a kind accepts only its own keys.
func TestKeysOfKinds(t *testing.T) {
	t.Parallel()
	keys, taken := map[string]bool{}, map[string]bool{"kind": true}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Term]()) {
		if key := field.Tag.Get("toml"); !field.Anonymous && key != "-" {
			keys[key] = true
		}
	}
	for _, k := range Kinds() {
		for _, key := range k.keys {
			taken[key] = true
		}
	}
	require.Equal(t, keys, taken)
}

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

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

func input(answer, text string, finish rollout.Finish) Input {
	raw, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return Input{Prompt: &rollout.Prompt{ID: "set:1", Text: "question", Answer: raw}, Text: text, Finish: finish}
}

func one(t Term) Config {
	c := Default()
	t.Timeout, t.Batch, t.Tags, t.Start, t.MemoryGiB, t.Retries = 30, 1, []string{"think"}, true, 8, 2
	c.Term = t
	return c
}

func TestConfig(t *testing.T) {
	t.Parallel()
	cfg := Default()
	require.NoError(t, cfg.Validate(10))
	for _, row := range []struct {
		name string
		term Term
		want []string
	}{
		{"kind", Term{Kind: "best"},
			[]string{`kind is "best", expected one of "` + strings.Join(names(Kinds()), `", "`) + `"`}},
		{"of others", Term{Kind: Prefix, ExactConfig: ExactConfig{Think: true},
			CommandConfig: CommandConfig{Command: []string{"a", "b"}}, HTTPConfig: HTTPConfig{URL: []string{"u"}}},
			[]string{
				`think is set, but does not apply to kind "prefix". It applies to "exact"`,
				`command is set, but does not apply to kind "prefix". It applies to "command"`,
				`url is set, but does not apply to kind "prefix". It applies to "http"`,
			}},
		{"no command", Term{Kind: Command}, []string{"command is empty, expected a program and its arguments"}},
		{"no url", Term{Kind: HTTP}, []string{"url is empty, expected the scorer's URL"}},
		{"no pattern", Term{Kind: Regex}, []string{"pattern is empty, expected a regular expression"}},
		{"no buffer", Term{Kind: Overlong}, []string{"buffer is 0, expected 1 to the length limit of 10 tokens"}},
		{"no words", Term{Kind: Repetition}, []string{"words is 0, expected 1 or more"}},
		{"no parts", Term{Kind: Sum},
			[]string{`parts is empty, expected at least one [reward.parts.<name>] with kind "sum"`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cfg := one(row.term)
			require.Equal(t, row.want, strings.Split(cfg.Validate(10).Error(), "\n"))
			_, err := New(cfg, 10)
			require.ErrorContains(t, err, "new reward: "+row.want[0])
		})
	}
	_, err := New(one(Term{Kind: Command, CommandConfig: CommandConfig{Command: []string{"easyrl-no-such-program"}}}),
		10)
	require.ErrorContains(t, err, `new reward: command: exec: "easyrl-no-such-program"`)
}

// The prompt's data source selects the reward.
func TestSources(t *testing.T) {
	t.Parallel()
	cfg := one(Term{Kind: Sum})
	weigh := func(kind string, weight float64) *Part {
		p := DefaultPart()
		p.Kind, p.Weight = kind, weight
		return &p
	}
	cfg.Parts = map[string]*Part{"right": weigh(Math, 2), "form": weigh(Format, 0), "late": weigh(Overlong, 1)}
	cfg.Parts["late"].Buffer = 4
	rule := DefaultRule()
	rule.Kind = GSM8K
	cfg.Sources = map[string]*Rule{"openai/gsm8k": &rule}
	s, err := New(cfg, 10)
	require.NoError(t, err)
	in := input("18", "18", rollout.Stop)
	in.Length = 8
	got, err := s.Score(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 2-0.5, got.Value)
	require.Equal(t, map[string]float64{"right": 1, "form": 0, "form/think": 0, "late": -0.5}, got.Parts)
	in.Prompt.Source, in.Text = "openai/gsm8k", "So it is 18."
	got, err = s.Score(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, Score{Parts: map[string]float64{"answered": 0}, Verdict: Wrong, Reason: grade.Unmarked}, got)

	cfg.Term, cfg.Parts = one(Term{}).Term, nil
	require.NoError(t, cfg.Validate(10))
	s, err = New(cfg, 10)
	require.NoError(t, err)
	in.Prompt.Source = "else"
	_, err = s.Score(t.Context(), in)
	require.ErrorIs(t, err, ErrNoReward)
	require.ErrorContains(t, err, `source "else"`)
	require.Nil(t, cfg.For("else"))
	require.True(t, cfg.For("openai/gsm8k").Lacks(nil))
}

func TestLacks(t *testing.T) {
	t.Parallel()
	part := DefaultPart()
	for _, row := range []struct {
		term Term
		want bool
	}{
		{Term{Kind: Exact}, true}, {Term{Kind: Prefix}, true}, {Term{Kind: Math}, true}, {Term{Kind: GSM8K}, true},
		{Term{Kind: Regex, RegexConfig: RegexConfig{Pattern: "a(b)"}}, true},
		{Term{Kind: Regex, RegexConfig: RegexConfig{Pattern: "a(?:b)"}}, false}, {Term{Kind: Format}, false},
		{Term{Kind: Command}, false}, {Term{Kind: HTTP}, false},
	} {
		p := part
		p.Term = row.term
		for _, r := range []Rule{{Term: row.term},
			{Term: Term{Kind: Sum}, Parts: map[string]*Part{"a": &p, "b": &part}}} {
			for answer, lacks := range map[string]bool{
				"": row.want, "null": row.want, "[]": row.want, `[""]`: row.want, `[null, ""]`: row.want,
				// Empty text may be the right answer for an exact comparison.
				`""`:  row.want && row.term.Kind != Exact && row.term.Kind != Prefix,
				`"5"`: false, "0": false, "false": false, `["", 5]`: false, "{}": false, `" "`: false,
			} {
				require.Equal(t, lacks, r.Lacks(json.RawMessage(answer)), "%s %s %s", r.Kind, row.term.Kind, answer)
			}
		}
	}
}

// Pass@k depends on whether the response is right, not on other parts of its score.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	part := func(kind string, weight float64, more func(p *Part)) *Part {
		p := DefaultPart()
		p.Kind, p.Weight = kind, weight
		if more != nil {
			more(&p)
		}
		return &p
	}
	late := part(Overlong, 0.1, func(p *Part) { p.Buffer = 9 })
	five := part(Regex, 1, func(p *Part) { p.Pattern = `#(\d)` })
	shape := part(Regex, 1, func(p *Part) { p.Pattern = `\d` })
	for _, row := range []struct {
		name, text string
		parts      map[string]*Part
		value      float64
		verdict    Verdict
		right      bool
	}{
		{"right, slightly over length", "#5", map[string]*Part{"a": five, "late": late}, 1 - 0.1*8/9, Right, true},
		{"right, with a small weight", "#5",
			map[string]*Part{"a": part(Regex, 0.1, func(p *Part) { p.Pattern = `#(\d)` })}, 0.1, Right, true},
		{"right, logged alone", "#5", map[string]*Part{"a": part(Regex, 0, func(p *Part) { p.Pattern = `#(\d)` }),
			"b": shape}, 1, Right, true},
		{"wrong, extras of 1", "#6", map[string]*Part{"a": five, "b": shape}, 1, Wrong, false},
		{"no answer, extras of 2", "6", map[string]*Part{"a": five, "b": shape, "c": shape}, 2, Wrong, false},
		{"one right of two, then", "#5", map[string]*Part{"a": five, "b": part(Exact, 1, nil)}, 1, Wrong, false},
		{"one right of two, first", "#5", map[string]*Part{"a": part(Exact, 1, nil), "b": five}, 1, Wrong, false},
		{"both right", "5", map[string]*Part{"a": part(Math, 0.5, nil), "b": part(Exact, 0.25, nil)}, 0.75,
			Right, true},
		{"wrong with a format score", "#### 6", map[string]*Part{"a": part(GSM8K, 0.9, nil),
			"b": part(Regex, 0.1, func(p *Part) { p.Pattern = `#### \d` })}, 0.1, Wrong, false},
		{"no part compares", "5", map[string]*Part{"b": shape}, 1, Open, true},
		{"no part compares, less than 1", "5", map[string]*Part{"b": shape, "late": late}, 1 - 0.1*8/9, Open, false},
	} {
		cfg := one(Term{Kind: Sum})
		cfg.Parts = row.parts
		s, err := New(cfg, 10)
		require.NoError(t, err, row.name)
		in := input("5", row.text, rollout.Stop)
		in.Length = 9
		got, err := s.Score(t.Context(), in)
		require.NoError(t, err, row.name)
		require.InDelta(t, row.value, got.Value, 1e-12, row.name)
		require.Equal(t, row.verdict, got.Verdict, row.name)
		require.Equal(t, row.right, got.Right(), row.name)
	}
	for text, right := range map[string]bool{"5": true, "55": false, "": false} {
		got, err := prefix{}.Score(t.Context(), input("5", text, rollout.Stop))
		require.NoError(t, err)
		require.Equal(t, right, got.Right(), text)
	}
}

// A sum says why its first wrong part is wrong.
func TestReasonOfSum(t *testing.T) {
	t.Parallel()
	f, err := NewSum([]Component{{"exact", 1, exact{}}, {"math", 1, NewMath()}, {"gsm8k", 1, NewGSM8K()}})
	require.NoError(t, err)
	for text, want := range map[string]string{"": grade.Unmarked, "#### 5": "", "\\boxed{6}": "another value"} {
		got, err := f.Score(t.Context(), input("5", text, rollout.Stop))
		require.NoError(t, err)
		require.Equal(t, want, got.Reason, text)
	}
}

// The capacity is that of all programs and services, wherever they are configured.
func TestCapacity(t *testing.T) {
	t.Parallel()
	service := func(concurrency, batch int) Term {
		term := defaultTerm()
		term.Kind, term.URL, term.Concurrency, term.Batch = HTTP, []string{"http://127.0.0.1:1"}, concurrency, batch
		return term
	}
	cfg := one(Term{Kind: Math})
	for _, want := range []int{0, 6, 6 + 8} {
		s, err := New(cfg, 10)
		require.NoError(t, err)
		require.Equal(t, want, s.Capacity())
		require.NoError(t, s.Close())
		switch want {
		case 0:
			cfg.Sources = map[string]*Rule{"a": {Term: service(3, 2)}}
		case 6:
			cfg.Term = one(Term{Kind: Sum}).Term
			cfg.Parts = map[string]*Part{"a": {Term: service(0, 1), Weight: 1},
				"b": {Term: one(Term{Kind: Math}).Term, Weight: 1}}
		}
	}
}

func TestExact(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		cfg          ExactConfig
		answer, text string
		finish       rollout.Finish
		want, format float64
	}{
		{"equal", ExactConfig{}, "1721", "1721", rollout.Stop, 1, 0},
		{"wrong", ExactConfig{}, "1721", "1722", rollout.Stop, 0, 0},
		{"cut", ExactConfig{}, "1721", "1721", rollout.Length, 0, 0},
		{"space", ExactConfig{}, "1721", "1721 ", rollout.Stop, 0, 0},
		{"both empty", ExactConfig{}, "", "", rollout.Stop, 1, 0},
		{"tags count as text", ExactConfig{}, "17", "<think>a</think>17", rollout.Stop, 0, 0},
		{"no tags", ExactConfig{Think: true}, "17", "17", rollout.Stop, 1, 1},
		{"thought", ExactConfig{Think: true}, "1721", "<think>4+7+0=11;1+0+1=2;9+8+0=17</think>1721",
			rollout.Stop, 1, 1},
		{"empty thought", ExactConfig{Think: true}, "17", "<think></think>17", rollout.Stop, 1, 1},
		{"thought, wrong", ExactConfig{Think: true}, "1872", "<think>8+4+0=12</think>1772", rollout.Stop, 0, 1},
		{"thought, cut", ExactConfig{Think: true}, "17", "<think>a</think>17", rollout.Length, 0, 1},
		{"thought, no answer", ExactConfig{Think: true}, "17", "<think>17</think>", rollout.Stop, 0, 1},
		{"not closed", ExactConfig{Think: true}, "17", "<think>17", rollout.Stop, 0, 0},
		{"not opened", ExactConfig{Think: true}, "17", "a</think>17", rollout.Stop, 0, 0},
		{"not leading", ExactConfig{Think: true}, "17", " <think>a</think>17", rollout.Stop, 0, 0},
		{"twice", ExactConfig{Think: true}, "17", "<think>a</think><think>b</think>17", rollout.Stop, 0, 0},
		{"nested", ExactConfig{Think: true}, "17", "<think><think>a</think>17", rollout.Stop, 0, 0},
		{"closed twice", ExactConfig{Think: true}, "17", "<think>a</think></think>17", rollout.Stop, 0, 0},
		{"wrong way round", ExactConfig{Think: true}, "17", "</think>17<think>", rollout.Stop, 0, 0},
		{"space after thought", ExactConfig{Think: true}, "17", "<think>a</think>\n17", rollout.Stop, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f, err := New(one(Term{Kind: Exact, ExactConfig: row.cfg}), 10)
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

func TestExactAcceptsAnyAnswerType(t *testing.T) {
	t.Parallel()
	for answer, text := range map[string]string{`43`: "43", `4.50`: "4.50", `true`: "true", `["a",1]`: `["a",1]`,
		`"x\ny"`: "x\ny"} {
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
		require.Equal(t, row.want, got.Value, "%+v", row)
		require.Equal(t, row.want == 1, got.Right(), "%+v", row)
	}
}

// Every prefix of every real answer scores its share, and the full answer scores 1.
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

func TestInProcessRewardsRespectContext(t *testing.T) {
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
		for _, answer := range []string{"", "null", "[]"} {
			in := input("", "", rollout.Stop)
			in.Prompt.Answer = json.RawMessage(answer)
			_, err := f.Score(t.Context(), in)
			require.ErrorIs(t, err, ErrNoAnswer)
			require.ErrorContains(t, err, "score prompt set:1")
		}
	}
}

// A rule refuses a reference answer that it does not find right itself.
func TestRefuses(t *testing.T) {
	t.Parallel()
	pattern := Term{Kind: Math, RegexConfig: RegexConfig{Pattern: "so: (.*)"}}
	for _, row := range []struct {
		answer               string // JSON
		math, matched, gsm8k string // reasons
	}{
		{`"72"`, "", "", ""},
		{`72.0`, "", "", ""},
		{`"1,080 dollars"`, "", "", ""},
		{`"She sells 48 / 2 = 24.\nTogether 72.\n#### 72"`, "", "", ""},
		{`"It is $2^3$, which is $\\boxed{8}$."`, "", "", ""},
		{`"(1, \\frac{\\pi}{2}]"`, "", "", grade.NoAnswer},
		{`"yes"`, "", "", grade.NoAnswer},
		{`"}"`, grade.NoAnswer, "", grade.NoAnswer},
		{`"\\frac{1}{2"`, grade.CutOff, "", grade.NoAnswer},
		{`"She has none.\n#### "`, grade.CutOff, grade.NoAnswer, grade.NoAnswer},
		{`"#### 5 or #### 6"`, "another value", "", "another value"},
		{`["}", "72"]`, "", "", ""},
		{`["}", "#### 5 or #### 6"]`, grade.NoAnswer, "", grade.NoAnswer},
	} {
		p := &rollout.Prompt{ID: "set:1", Text: "How many?", Answer: json.RawMessage(row.answer)}
		for _, c := range []struct {
			term Term
			want string
		}{{Term{Kind: Math}, row.math}, {pattern, row.matched}, {Term{Kind: GSM8K}, row.gsm8k}, {Term{Kind: Exact}, ""},
			{Term{Kind: Command}, ""}, {Term{Kind: Format}, ""}} {
			require.Equal(t, c.want, (&Rule{Term: c.term}).Refuses(p), "%s %s", c.term.Kind, row.answer)
			sum := Rule{Term: Term{Kind: Sum},
				Parts: map[string]*Part{"a": {Term: Term{Kind: Overlong}}, "right": {Term: c.term}}}
			if c.want != "" {
				c.want = "part right: " + c.want
			}
			require.Equal(t, c.want, sum.Refuses(p), "sum of %s %s", c.term.Kind, row.answer)
		}
	}
}

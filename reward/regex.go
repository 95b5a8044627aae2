package reward

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade"
)

// Regex is the name of regexKind.
const Regex = "regex"

// RegexConfig holds the keys that kinds "regex" and "math" share.
type RegexConfig struct {
	// Regular expression in RE2 syntax. The last match of its group is compared with the
	// reference answer, as text by "regex" and as mathematics by "math". Without a group,
	// "regex" accepts any match.
	Pattern string `toml:"pattern"`
}

func regexKind() Kind {
	return Kind{
		Name:    Regex,
		About:   "compares the match of a regular expression.",
		keys:    []string{"pattern"},
		example: func(r *Rule) { r.Pattern = `answer: (.*)` },
		check:   checkRegex,
		build:   func(r *Rule, _ int) (Func, error) { return NewRegex(r.RegexConfig) },
		lacks: func(r *Rule, answer json.RawMessage) bool {
			pattern, err := regexp.Compile(r.Pattern)
			return err == nil && pattern.NumSubexp() > 0 && blank(answer)
		},
	}
}

func checkRegex(v *validation, r *Rule) {
	pattern, err := regexp.Compile(r.Pattern)
	switch {
	case r.Pattern == "":
		v.fault("pattern", "is empty, expected a regular expression")
	case err != nil:
		v.fault("pattern", "is not a valid regular expression: %v", err)
	case pattern.NumSubexp() > 1:
		v.fault("pattern", "is %q with %d groups, expected at most one. (?:…) groups without capturing", r.Pattern,
			pattern.NumSubexp())
	case r.Kind == Math && pattern.NumSubexp() == 0:
		v.fault("pattern", "is %q without a group, expected one that captures the answer", r.Pattern)
	}
}

// expression scores with a regular expression, in time linear in the response.
type expression struct {
	pattern *regexp.Regexp
	math    bool // compare the match as mathematics, not as text
}

// NewRegex returns the reward of kind "regex": 1 if the response matches and the match
// is the prompt's answer, else 0. It fails on an invalid pattern.
func NewRegex(cfg RegexConfig) (Func, error) {
	if err := regexKind().valid(Term{RegexConfig: cfg}, 0); err != nil {
		return nil, err
	}
	pattern, err := regexp.Compile(cfg.Pattern)
	return expression{pattern: pattern}, err
}

func (e expression) Score(ctx context.Context, in Input) (Score, error) {
	if e.pattern.NumSubexp() == 0 {
		return Score{Value: number(e.pattern.MatchString(in.Text))}, ctx.Err()
	}
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	got, found := "", false
	for start := 0; start <= len(in.Text); {
		m := e.pattern.FindStringSubmatchIndex(in.Text[start:])
		if m == nil {
			break
		}
		if m[2] >= 0 { // the group takes part in the match
			got = strings.TrimSpace(in.Text[start+m[2] : start+m[3]])
			found = true
		}
		start += max(m[1], 1) // also after an empty match
	}
	score := Score{Verdict: Wrong}
	switch {
	case !found:
		return score, nil
	case e.math:
		score.Answer = grade.Canonical(got)
	case len(got) <= maxVote:
		score.Answer = got
	}
	wants := answers(in.Prompt)
	right := slices.ContainsFunc(wants, func(want string) bool {
		if e.math {
			score.Reason = grade.NewTask(in.Prompt.Question(), want).FaultOf(got)
			return score.Reason == ""
		}
		return strings.TrimSpace(want) == got
	})
	score.Value, score.Verdict = number(right), verdict(right)
	if right && e.math {
		score.Answer = grade.Canonical(wants[0])
	}
	return score, nil
}

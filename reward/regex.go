package reward

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade"
)

// RegexConfig is what kind "regex" can be told.
type RegexConfig struct {
	// Pattern in RE2 syntax. Where it has a group, the group's last match is the
	// answer that is compared; where it has none, to match is all.
	Pattern string
	// Math compares as kind "math" does; otherwise letter by letter, white space
	// around either side left out.
	Math bool
}

// expression scores by a regular expression, in time linear in the response.
type expression struct {
	pattern *regexp.Regexp
	math    bool
}

// NewRegex is the reward of kind "regex": 1 where the response matches, and what
// matches is the prompt's answer, else 0. It fails on a bad pattern.
func NewRegex(cfg RegexConfig) (Func, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new regex reward: %w", err)
	}
	pattern, err := regexp.Compile(cfg.Pattern)
	return expression{pattern, cfg.Math}, err
}

// validate reports a fault, beginning with its key.
func (c RegexConfig) validate() error {
	pattern, err := regexp.Compile(c.Pattern)
	switch {
	case c.Pattern == "":
		return errors.New("pattern is empty, expected a regular expression")
	case err != nil:
		return fmt.Errorf("pattern is no regular expression: %w", err)
	case pattern.NumSubexp() > 1:
		return fmt.Errorf("pattern is %q, which has %d groups, expected one or none: (?:…) groups without counting", c.Pattern, pattern.NumSubexp())
	case c.Math && pattern.NumSubexp() == 0:
		return fmt.Errorf("pattern is %q, which has no group, expected one to compare as mathematics", c.Pattern)
	}
	return nil
}

func (e expression) Score(ctx context.Context, in Input) (Score, error) {
	if e.pattern.NumSubexp() == 0 {
		return Score{Value: number(e.pattern.MatchString(in.Text))}, ctx.Err()
	}
	if err := ready(ctx, in, Regex); err != nil {
		return Score{}, err
	}
	got, found := "", false
	for at := 0; at <= len(in.Text); {
		m := e.pattern.FindStringSubmatchIndex(in.Text[at:])
		if m == nil {
			break
		}
		if m[2] >= 0 {
			got, found = strings.TrimSpace(in.Text[at+m[2]:at+m[3]]), true
		}
		at += max(m[1], 1)
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
			return grade.Equal(want, got)
		}
		return strings.TrimSpace(want) == got
	})
	score.Value, score.Verdict = number(right), verdict(right)
	if right && e.math {
		score.Answer = grade.Canonical(wants[0])
	}
	return score, nil
}

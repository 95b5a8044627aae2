package reward

import (
	"context"
	"strings"
)

// Repetition is the name of repetitionKind.
const Repetition = "repetition"

// RepetitionConfig holds the keys of kind "repetition".
type RepetitionConfig struct {
	// Words of "repetition" that count as one, in a row.
	Words int `toml:"words" unit:"words"`
	// Penalty of "repetition" for a response that only repeats, less than 0.
	Penalty float64 `toml:"penalty"`
}

func repetitionKind() Kind {
	return Kind{
		Name:    Repetition,
		About:   "punishes words that repeat.",
		keys:    []string{"words", "penalty"},
		example: func(r *Rule) { r.Words, r.Penalty = 2, -1 },
		check:   checkRepetition,
		build:   func(r *Rule, _ int) (Func, error) { return NewRepetition(r.RepetitionConfig) },
	}
}

func checkRepetition(v *validation, r *Rule) {
	switch {
	case r.Words < 1:
		v.fault("words", "is %d, expected 1 or more", r.Words)
	case !(r.Penalty < 0 && r.Penalty >= -1e6):
		v.fault("penalty", "is %v, expected less than 0 and at least -1e6", r.Penalty)
	}
}

type repetition struct{ cfg RepetitionConfig }

// NewRepetition is the reward of kind "repetition" (Demystifying long chain of
// thought, arXiv:2502.03373, appendix): Penalty times the share of word n-grams
// that have been there before, whatever their case.
func NewRepetition(cfg RepetitionConfig) (Func, error) {
	if err := repetitionKind().valid(Term{RepetitionConfig: cfg}); err != nil {
		return nil, err
	}
	return repetition{cfg}, nil
}

func (r repetition) Score(ctx context.Context, in Input) (Score, error) {
	fields := strings.Fields(strings.ToLower(in.Text))
	total := len(fields) - r.cfg.Words + 1
	if total < 1 {
		return Score{}, ctx.Err()
	}
	// Each n-gram is a part of one text.
	joined := strings.Join(fields, " ")
	seen := make(map[string]struct{}, total)
	end := 0
	for _, f := range fields[:r.cfg.Words] {
		end += len(f) + 1
	}
	for i, begin := 0, 0; ; i++ {
		seen[joined[begin:end-1]] = struct{}{}
		if i+1 == total {
			break
		}
		begin += len(fields[i]) + 1
		end += len(fields[i+r.cfg.Words]) + 1
	}
	return Score{Value: r.cfg.Penalty*(1-float64(len(seen))/float64(total)) + 0}, ctx.Err()
}

package reward

import (
	"context"
	"strings"
)

// Repetition is the name of repetitionKind.
const Repetition = "repetition"

// RepetitionConfig holds the keys of kind "repetition".
type RepetitionConfig struct {
	// Length of the n-grams that "repetition" counts, in words.
	Words int `toml:"words" unit:"words"`
}

func repetitionKind() Kind {
	return Kind{
		Name:    Repetition,
		About:   "penalizes repeated words.",
		keys:    []string{"words"},
		example: func(r *Rule) { r.Words = 2 },
		check:   checkRepetition,
		build:   func(r *Rule, _ int) (Func, error) { return NewRepetition(r.RepetitionConfig) },
	}
}

func checkRepetition(v *validation, r *Rule) {
	v.expect(r.Words >= 1, "words", "is %d, expected 1 or more", r.Words)
}

// repetition penalizes n-grams of cfg.Words words that occur again.
type repetition struct{ cfg RepetitionConfig }

// NewRepetition returns the reward of kind "repetition" (Yeo et al. 2025,
// "Demystifying long chain-of-thought reasoning", arXiv 2502.03373, appendix): minus
// the share of n-grams of Words words that occur earlier in the response, whatever
// their case.
func NewRepetition(cfg RepetitionConfig) (Func, error) {
	if err := repetitionKind().valid(Term{RepetitionConfig: cfg}, 0); err != nil {
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
	// Each n-gram is the substring joined[begin:end-1]. end includes the space after it.
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
	return Score{Value: float64(len(seen))/float64(total) - 1}, ctx.Err()
}

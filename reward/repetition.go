package reward

import (
	"context"
	"fmt"
	"strings"
)

// RepetitionConfig is what kind "repetition" can be told.
type RepetitionConfig struct {
	Words   int     // in a row that count as one
	Penalty float64 // for nothing but repetition, less than 0
}

type repetition struct{ cfg RepetitionConfig }

// NewRepetition is the reward of kind "repetition" (Demystifying long chain of
// thought, arXiv:2502.03373, appendix): Penalty times the share of word n-grams
// that have been there before, whatever their case.
func NewRepetition(cfg RepetitionConfig) (Func, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new repetition reward: %w", err)
	}
	return repetition{cfg}, nil
}

// validate reports a fault, beginning with its key.
func (c RepetitionConfig) validate() error {
	switch {
	case c.Words < 1:
		return fmt.Errorf("words is %d, expected 1 or more", c.Words)
	case !(c.Penalty < 0 && c.Penalty >= -1e6):
		return fmt.Errorf("penalty is %v, expected less than 0 and at least -1e6", c.Penalty)
	}
	return nil
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

package reward

import (
	"context"
	"fmt"
)

// OverlongConfig is what kind "overlong" can be told.
type OverlongConfig struct {
	MaxTokens int // of a response, at most
	Buffer    int // tokens before MaxTokens over which the punishment grows
}

type overlong struct{ cfg OverlongConfig }

// NewOverlong is the reward of kind "overlong", soft over-long punishment (DAPO,
// arXiv:2503.14476, equation 13), for a response y:
//
//	0                                 |y| <= MaxTokens - Buffer
//	(MaxTokens - Buffer - |y|)/Buffer MaxTokens - Buffer < |y| <= MaxTokens
//	-1                                MaxTokens < |y|
func NewOverlong(cfg OverlongConfig) (Func, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new overlong reward: %w", err)
	}
	return overlong{cfg}, nil
}

// validate reports a fault, beginning with its key.
func (c OverlongConfig) validate() error {
	switch {
	case c.MaxTokens < 1:
		return fmt.Errorf("max_tokens is %d, expected 1 or more", c.MaxTokens)
	case c.Buffer < 1 || c.Buffer > c.MaxTokens:
		return fmt.Errorf("buffer is %d, expected 1 to the length limit of %d tokens", c.Buffer, c.MaxTokens)
	}
	return nil
}

func (o overlong) Score(ctx context.Context, in Input) (Score, error) {
	over := in.Length - (o.cfg.MaxTokens - o.cfg.Buffer)
	value := max(-1, -float64(max(0, over))/float64(o.cfg.Buffer))
	return Score{Value: value + 0}, ctx.Err() // + 0: no negative zero
}

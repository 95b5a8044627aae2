package reward

import (
	"context"
)

// Overlong is the name of overlongKind.
const Overlong = "overlong"

// OverlongConfig holds the keys of kind "overlong".
type OverlongConfig struct {
	// Number of tokens before rollout.max_tokens over which the penalty of "overlong" grows.
	Buffer int `toml:"buffer" unit:"tokens"`
}

func overlongKind() Kind {
	return Kind{
		Name:    Overlong,
		About:   "penalizes responses near the length limit.",
		keys:    []string{"buffer"},
		example: func(r *Rule) { r.Buffer = 1 },
		check:   checkOverlong,
		build: func(r *Rule, maxTokens int) (Func, error) {
			return NewOverlong(r.OverlongConfig, maxTokens)
		},
	}
}

func checkOverlong(v *validation, r *Rule) {
	v.expect(r.Buffer >= 1 && r.Buffer <= v.maxTokens, "buffer", "is %d, expected 1 to the length limit of %d tokens",
		r.Buffer, v.maxTokens)
}

// overlong penalizes the tokens of a response after limit - buffer.
type overlong struct{ limit, buffer int }

// NewOverlong returns the reward of kind "overlong", soft overlong punishment (DAPO,
// arXiv 2503.14476, equation 13), for a response y of at most maxTokens tokens:
//
//	0                                 |y| <= maxTokens - Buffer
//	(maxTokens - Buffer - |y|)/Buffer maxTokens - Buffer < |y| <= maxTokens
//	-1                                maxTokens < |y|
func NewOverlong(cfg OverlongConfig, maxTokens int) (Func, error) {
	if err := overlongKind().valid(Term{OverlongConfig: cfg}, maxTokens); err != nil {
		return nil, err
	}
	return overlong{maxTokens, cfg.Buffer}, nil
}

func (o overlong) Score(ctx context.Context, in Input) (Score, error) {
	over := in.Length - (o.limit - o.buffer)
	value := max(-1, -float64(max(0, over))/float64(o.buffer))
	return Score{Value: value + 0}, ctx.Err() // -0 + 0 is 0
}

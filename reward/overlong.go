package reward

import (
	"cmp"
	"context"
)

// Overlong is the name of overlongKind.
const Overlong = "overlong"

// OverlongConfig holds the keys of kind "overlong".
type OverlongConfig struct {
	// MaxTokens is the length limit of "overlong"; 0 takes rollout.max_tokens.
	MaxTokens int `toml:"max_tokens" unit:"tokens"`
	// Buffer is the number of tokens before the limit of "overlong" over which the
	// punishment grows.
	Buffer int `toml:"buffer" unit:"tokens"`
}

func overlongKind() Kind {
	return Kind{
		Name:    Overlong,
		About:   "punishes responses that come near the length limit.",
		keys:    []string{"max_tokens", "buffer"},
		example: func(r *Rule) { r.Buffer = 1 },
		check:   checkOverlong,
		build: func(r *Rule, maxTokens int) (Func, error) {
			return NewOverlong(OverlongConfig{MaxTokens: cmp.Or(r.MaxTokens, maxTokens), Buffer: r.Buffer})
		},
	}
}

func checkOverlong(v *validation, r *Rule) {
	limit := cmp.Or(r.MaxTokens, v.maxTokens)
	switch {
	case limit < 1:
		v.fault("max_tokens", "is %d, expected 1 or more", limit)
	case r.Buffer < 1 || r.Buffer > limit:
		v.fault("buffer", "is %d, expected 1 to the length limit of %d tokens", r.Buffer, limit)
	}
}

type overlong struct{ cfg OverlongConfig }

// NewOverlong is the reward of kind "overlong", soft over-long punishment (DAPO,
// arXiv:2503.14476, equation 13), for a response y:
//
//	0                                 |y| <= MaxTokens - Buffer
//	(MaxTokens - Buffer - |y|)/Buffer MaxTokens - Buffer < |y| <= MaxTokens
//	-1                                MaxTokens < |y|
func NewOverlong(cfg OverlongConfig) (Func, error) {
	if err := overlongKind().valid(Term{OverlongConfig: cfg}); err != nil {
		return nil, err
	}
	return overlong{cfg}, nil
}

func (o overlong) Score(ctx context.Context, in Input) (Score, error) {
	over := in.Length - (o.cfg.MaxTokens - o.cfg.Buffer)
	value := max(-1, -float64(max(0, over))/float64(o.cfg.Buffer))
	return Score{Value: value + 0}, ctx.Err() // + 0: no negative zero
}

package reward

import (
	"encoding/json"
	"strings"

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

// GSM8K is the name of gsm8kKind.
const GSM8K = "gsm8k"

func gsm8kKind() Kind {
	return Kind{
		Name:  GSM8K,
		About: `is kind "math" for answers that are numbers; part "answered" says whether the response marks one.`,
		keys:  []string{"marks"},
		check: checkMarks,
		build: func(r *Rule, _ int) (Func, error) {
			return mathematics{lenient: r.Marks == AnyMarks, numbers: true}, nil
		},
		lacks: func(_ *Rule, answer json.RawMessage) bool { return blank(answer) },
		refuses: func(_ *Rule, p *rollout.Prompt) string {
			return refusesAll(p, func(task *grade.Task, want string) string {
				bare := grade.Bare(want)
				if value := grade.Canonical(bare); value == "" || strings.Trim(value, "0123456789/-") != "" {
					return grade.NoAnswer
				}
				return task.Fault("#### " + bare)
			})
		},
	}
}

// NewGSM8K returns the reward of kind "gsm8k": 1 if a response's last mark holds the number that
// is the prompt's answer, else 0. The part "answered" is 1 if the mark holds any. It agrees with
// kind "math" about every response whose last mark holds a number.
func NewGSM8K() Func { return mathematics{numbers: true} }

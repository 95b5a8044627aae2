package grade

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/markup"
)

// Reward functions of other projects, as requirements on this package: a box is found,
// a normal form equals its original, a response is right. Judged differently, by line:
//
//	25              it requires a box
//	31              it reads only the last 300 bytes
//	49, 51          it requires "Answer:" before the answer
func TestRewardFunctions(t *testing.T) {
	t.Parallel()
	other := []int{25, 31, 49, 51}
	for i, row := range table[struct {
		Fn       string
		Args     []any
		Kwargs   map[string]any
		Expected any
	}](t, "conformance", "math_reward_functions.jsonl") {
		text := make([]string, len(row.Args))
		for k, arg := range row.Args {
			text[k], _ = arg.(string)
		}
		name, _, _ := strings.Cut(row.Fn, "[")
		var got, want any = nil, row.Expected
		switch name[strings.LastIndexByte(name, '.')+1:] {
		case "last_boxed_only_string", "remove_boxed", "extract_answer":
			if inside, _, ok := markup.Boxed(text[0]); ok {
				got = inside
			}
			if s, ok := want.(string); ok && strings.Contains(s, "box") {
				want = s[strings.IndexByte(s, '{')+1 : len(s)-1]
			}
		case "_strip_string", "normalize_final_answer", "strip_string", "mathd_normalize_answer":
			if want != nil {
				s := strings.ReplaceAll(want.(string), "sqrt{2}", `\sqrt{2}`)
				got, want = answer.Equal(strings.ReplaceAll(s, `\\sqrt`, `\sqrt`), Final(text[0])), true
			}
		case "math_equal", "grade_answer_mathd", "grade_answer_sympy":
			got = answer.Equal(text[1], text[0])
		default: // takes a response and an answer
			got = Correct(text[0], text[1])
			switch v := want.(type) {
			case float64:
				want = v > 0
			}
		}
		if slices.Contains(other, i+1) {
			require.NotEqual(t, want, got, "line %d agrees now", i+1)
			continue
		}
		require.Equal(t, want, got, "line %d: %s %q", i+1, row.Fn, row.Args)
	}
}

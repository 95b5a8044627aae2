package grade

import "github.com/easyrl/easyrl/reward/grade/answer"

// Canonical returns one text for equal answers, as far as equality is cheap to detect.
// want may be a solution with its answer boxed or after ####.
func Canonical(want string) string { return answer.Canonical(Bare(want)) }

// Answered returns the canonical answer of a response, or "" if it gives none.
func Answered(response string) string {
	if readings := Extract(response); len(readings) > 0 {
		return answer.Canonical(readings[0])
	}
	return ""
}

package grade

import "github.com/easyrl/easyrl/reward/grade/answer"

// Canonical is one text for answers that say the same, as far as that is cheap to
// see; want may be a solution with its answer boxed or behind ####.
func Canonical(want string) string { return answer.Canonical(expected(want)) }

// Answered is what a response answers, as Canonical has it; empty where it gives
// no answer.
func Answered(response string) string {
	if readings := Extract(response); len(readings) > 0 {
		return answer.Canonical(readings[0])
	}
	return ""
}

package words

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// First returns the first word of s, or "".
func First(s string) string {
	if f := strings.Fields(s); len(f) > 0 {
		return f[0]
	}
	return ""
}

// Prose reports whether s has two consecutive words outside commands.
func Prose(s string) bool {
	run, words := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			for expr.LetterAt(s, i+1) {
				i++
			}
			if strings.HasPrefix(s[i+1:], "{") { // skip words in \text{}
				if end := strings.IndexByte(s[i+1:], '}'); end > 0 {
					i += end
				}
			}
			run, words = 0, 0
		case expr.LetterAt(s, i):
			if run++; run == 2 {
				words++
			}
		case s[i] == ' ':
			run = 0
		default:
			run, words = 0, 0
		}
		if words >= 2 {
			return true
		}
	}
	return false
}

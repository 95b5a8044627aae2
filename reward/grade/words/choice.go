package words

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/markup"
)

// Choice returns the letter that s chooses: C, (C), "(C) 42", "C. Evelyn".
func Choice(s string) (byte, bool) {
	s = strings.TrimSpace(markup.Bare(s))
	for _, word := range []string{"option ", "choice ", "answer "} {
		if len(s) > len(word) && strings.EqualFold(s[:len(word)], word) {
			s = strings.TrimSpace(s[len(word):])
		}
	}
	open := strings.HasPrefix(s, "(")
	s = strings.TrimPrefix(s, "(")
	if s == "" || s[0] < 'A' || s[0] > 'J' {
		return 0, false
	}
	rest := s[1:]
	if at := strings.IndexByte(rest, '('); open && at >= 0 && at+2 < len(rest) && rest[at+1] >= 'A' && rest[at+1] <= 'J' && rest[at+2] == ')' {
		return 0, false // two choices
	}
	switch {
	case open && strings.HasPrefix(rest, ")"), !open && rest == "":
	case !open && rest != "" && (rest[0] == ')' || rest[0] == '.' || rest[0] == ':') && (len(rest) == 1 || rest[1] == ' '):
	default:
		return 0, false
	}
	return s[0], true
}

// Chosen returns the text after the letter of a choice: 42 for "(C) 42".
func Chosen(s string) (string, bool) {
	if _, ok := Choice(s); !ok {
		return "", false
	}
	at := strings.IndexAny(s, ").:")
	if at < 0 {
		return "", false
	}
	rest := s[at+1:]
	for before := ""; rest != before; {
		before = rest
		rest = strings.TrimLeft(rest, " }~\n")
		for _, space := range []string{`\ `, `\,`, `\;`, `\quad`} {
			rest = strings.TrimPrefix(rest, space)
		}
	}
	return rest, rest != ""
}

package words

import "strings"

// Filler returns the length of the meaningless words at the start of an answer.
func Filler(s string) int {
	at := 0
	for at < len(s) {
		end := at
		for end < len(s) && s[end] != ' ' {
			end++
		}
		word := strings.ToLower(strings.Trim(s[at:end], ",:*"))
		if s[at] == 'A' && word == "a" && (at > 0 || s[end-1] == ',') {
			return at // a choice
		}
		if word == "a" && (end+1 >= len(s) || strings.IndexByte("+-*/=<>,.^", s[end+1]) >= 0) {
			return at // a symbol
		}
		switch word {
		case "", "the", "an", "therefore", "thus", "hence", "then", "so", "simply", "just", "exactly", "approximately", "about", "roughly", "indeed",
			"given", "by", "equal", "to", "option", "choice", "is", "that", "now", "also", "still", "therefore:", "a", "total", "of", "around", "nearly":
		default:
			return at
		}
		at = end
		for at < len(s) && s[at] == ' ' {
			at++
		}
	}
	return at
}

package data

import "strings"

// lastBoxed returns the content of the last \boxed{…} or \fbox{…} in a solution.
// Braces nest; a backslash escapes the next one.
func lastBoxed(solution string) (string, bool) {
	at, open := -1, 0
	for _, command := range []string{`\boxed`, `\fbox`} {
		if i := strings.LastIndex(solution, command); i > at {
			at, open = i, i+len(command)
		}
	}
	if at < 0 {
		return "", false
	}
	rest := strings.TrimLeft(solution[open:], " ")
	if !strings.HasPrefix(rest, "{") {
		word, _, _ := strings.Cut(rest, "$") // \boxed 5$
		return strings.TrimSpace(word), strings.TrimSpace(word) != "" && rest != solution[open:]
	}
	depth := 0
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return strings.TrimSpace(rest[1:i]), true
			}
		}
	}
	return "", false
}

// afterHashes returns the first line after the last "####" of a worked answer.
func afterHashes(answer string) (string, bool) {
	const mark = "####"
	at := strings.LastIndex(answer, mark)
	if at < 0 {
		return "", false
	}
	line, _, _ := strings.Cut(strings.TrimSpace(answer[at+len(mark):]), "\n")
	return strings.TrimSpace(line), line != ""
}

package data

import "strings"

// lastBoxed returns the content of the last \boxed{…} or \fbox{…} in a solution.
// Braces nest; a backslash escapes the next one.
func lastBoxed(solution string) (string, bool) {
	last, argument := -1, 0 // offsets of the last command and of its argument
	for _, command := range []string{`\boxed`, `\fbox`} {
		if i := strings.LastIndex(solution, command); i > last {
			last, argument = i, i+len(command)
		}
	}
	if last < 0 {
		return "", false
	}
	rest := strings.TrimLeft(solution[argument:], " ")
	if !strings.HasPrefix(rest, "{") { // \boxed 5$, which needs the space
		word, _, _ := strings.Cut(rest, "$")
		word = strings.TrimSpace(word)
		hasSpace := rest != solution[argument:]
		return word, word != "" && hasSpace
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

// afterHashes returns the first line after the last "####" of a worked answer, as in GSM8K.
func afterHashes(answer string) (string, bool) {
	const mark = "####"
	at := strings.LastIndex(answer, mark)
	if at < 0 {
		return "", false
	}
	line, _, _ := strings.Cut(strings.TrimSpace(answer[at+len(mark):]), "\n")
	return strings.TrimSpace(line), line != ""
}

package secret

import "strings"

// skip returns the first position from i on whose byte is not in set.
func (s *scanner) skip(i int, set string) int {
	start := i
	for i < len(s.text) && strings.IndexByte(set, s.text[i]) >= 0 {
		i++
	}
	s.looked += i - start
	return i
}

// until returns the position of the first mark from i on, or the end of the text.
func (s *scanner) until(i int, mark string) int {
	size := strings.Index(s.text[i:], mark)
	if size < 0 {
		size = len(s.text) - i
	}
	s.looked += size
	return i + size
}

// quote reads a quote, with backslashes before it, at position i. It returns the number of backslashes and
// the position after the quote. If there is no quote, it returns 0 and i.
func (s *scanner) quote(i int) (backslashes, end int) {
	mark := s.skip(i, `\`)
	if mark == len(s.text) || (s.text[mark] != '"' && s.text[mark] != '\'') {
		return 0, i
	}
	return mark - i, mark + 1
}

// unquote returns the end of the quoted text that starts at position i, and the position after the quote
// that closes it. Both are the end of the text if no quote closes it. quote is the character that opened
// the quoted text, and backslashes the number of backslashes before it. If a quoted text is quoted again n
// times, 2^n - 1 backslashes precede its quotes, and each of its own backslashes becomes 2^n.
func (s *scanner) unquote(i int, quote byte, backslashes int) (end, after int) {
	if backslashes&(backslashes+1) != 0 { // not 2^n - 1
		backslashes = 0
	}
	run, start := 0, i // run is the number of backslashes just before i
	defer func() { s.looked += i - start }()
	for ; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			run++
			continue
		case quote:
			if run%(2*(backslashes+1)) == backslashes {
				return i - backslashes, i + 1
			}
		}
		run = 0
	}
	return i, i
}

// quotedText returns where the text within the quotes at position i starts and ends, and the position after
// the closing quote. Three quotes in a row also open a text, which three quotes close. If there is no
// quote at i, all results are i.
func (s *scanner) quotedText(i int) (from, to, after int) {
	backslashes, open := s.quote(i)
	if open == i {
		return i, i, i
	}
	quote := s.text[i:open]
	if !strings.HasPrefix(s.text[open:], quote) || !strings.HasPrefix(s.text[open+len(quote):], quote) {
		to, after = s.unquote(open, s.text[open-1], backslashes)
		return open, to, after
	}
	triple := quote + quote + quote
	from = i + len(triple)
	size := strings.Index(s.text[from:], triple)
	if size < 0 {
		s.looked += len(s.text) - from
		return from, len(s.text), len(s.text)
	}
	s.looked += size
	return from, from + size, from + size + len(triple)
}

// value masks the value at position i: a word, a quoted text or a list of these. header means that it is
// the value of a header, which without quotes extends to the end of the line. value reports false, and
// masks nothing, for references to variables and for values that hold no secret.
func (s *scanner) value(i int, header bool) bool {
	i = s.skip(i, " \t")
	if i == len(s.text) || s.text[i] == '{' || s.isReference(i) {
		return false
	}
	if _, open := s.quote(i); open > i && s.text[i] != '\'' && s.isReference(open) { // a shell reads "$NAME"
		return false
	}
	if from := s.listStart(i); from > i {
		return s.list(from)
	}
	from, to, after := s.quotedText(i)
	switch {
	case after == i && header:
		to = s.lineEnd(i)
	case after == i || s.valueEnd(i) > after:
		from, to = i, s.valueEnd(i)
		if isScheme(s.text[i:to]) {
			to = s.valueEnd(s.skip(to, " \t"))
		}
	}
	if from == i {
		to = trimEnd(s.text, from, to)
	}
	if from >= to || isScheme(s.text[from:to]) || isConstant(s.text[from:to]) {
		return false
	}
	s.mask(from, to)
	return true
}

// isConstant reports whether a value is a constant such as true or null, which is no secret.
func isConstant(value string) bool {
	switch strings.ToLower(value[:min(len(value), 6)]) {
	case "true", "false", "null", "none", "nil":
		return true
	}
	return false
}

// listStart returns where the content of a list at position i starts, or i if there is no list. A
// parenthesis starts a list only if a quote follows it.
func (s *scanner) listStart(i int) int {
	const goList = "[]string{"
	if strings.HasPrefix(s.text[i:], goList) {
		return i + len(goList)
	}
	_, open := s.quote(i + 1)
	if s.text[i] == '[' || (s.text[i] == '(' && open > i+1) {
		return i + 1
	}
	return i
}

// list masks the quoted values of a list whose content starts at position i, or all of the content if its
// first value has no quotes.
func (s *scanner) list(i int) bool {
	first := s.skip(i, " \t\r\n")
	if _, open := s.quote(first); open == first {
		if first == len(s.text) || s.text[first] == '{' || s.text[first] == ']' {
			return false
		}
		s.mask(first, s.until(first, "]"))
		return true
	}
	found := false
	for {
		i = s.skip(i, " \t\r\n,")
		from, to, after := s.quotedText(i)
		if after == i {
			return found
		}
		s.mask(from, to)
		i, s.at, found = after, after, true
	}
}

// valueEnd returns the end of the word at position i as a shell reads it: parts in quotes
// belong to it.
func (s *scanner) valueEnd(i int) int {
	start := i
	defer func() { s.looked += i - start }()
	for i < len(s.text) {
		c := s.text[i]
		switch {
		case strings.HasPrefix(s.text[i:], `\''`) && i > start:
			i += 2 // an escaped quote between quotes
		case strings.HasPrefix(s.text[i:], `"'"`) && i > start, strings.HasPrefix(s.text[i:], `'"'`) && i > start:
			i += 3 // a quoted quote
		case c == '\\' || c == '"' || c == '\'':
			_, open := s.quote(i)
			switch {
			case open == i: // backslashes, one of which may escape a space
				if i = s.skip(i, `\`); i < len(s.text) && (s.text[i] == ' ' || s.text[i] == '\t') {
					i++
				}
			case i == start || open < len(s.text) && isWordByte(s.text[open]):
				_, _, i = s.quotedText(i)
				if i < len(s.text) && !isWordByte(s.text[i]) && strings.IndexByte(`\"'`, s.text[i]) < 0 {
					return i
				}
			default:
				return i
			}
		case isSpace(c) || strings.IndexByte(",;&", c) >= 0 && s.separates(i):
			return i
		default:
			i++
		}
	}
	return i
}

// separates reports whether the comma, semicolon or ampersand at position i ends a value,
// because a space, a quote or another name is after it.
func (s *scanner) separates(i int) bool {
	next := i + 1
	for next < len(s.text) && isNameByte(s.text[next]) {
		next++
	}
	s.looked += next - i
	if next == i+1 {
		return next == len(s.text) || !isWordByte(s.text[next])
	}
	return next < len(s.text) && (s.text[next] == '=' || s.text[next] == ':')
}

// lineEnd returns the end of a header's value at position i: the quote that closes the text
// around it, or the end of the line.
func (s *scanner) lineEnd(i int) int {
	if end := s.enclosed(i); end > i {
		return end
	}
	start := i
	defer func() { s.looked += i - start }()
	for i < len(s.text) {
		c := s.text[i]
		if c == '=' {
			if _, _, after := s.quotedText(i + 1); after > i+1 {
				i = after
				continue
			}
		}
		if c == '\n' || c == '\r' || strings.HasPrefix(s.text[i:], `\r`) || strings.HasPrefix(s.text[i:], `\n`) {
			return i
		}
		if _, open := s.quote(i); open > i && (open == len(s.text) || !isWordByte(s.text[open])) {
			return i
		}
		i++
	}
	return i
}

// enclosed returns the end of the quoted text that begins with the name at s.at and extends beyond position
// i, or 0 if there is no quote before the name.
func (s *scanner) enclosed(i int) int {
	before := s.at - 1
	if before < s.done || s.text[before] != '"' && s.text[before] != '\'' {
		return 0
	}
	backslashes := before - len(strings.TrimRight(s.text[:before], `\`))
	end, after := s.unquote(i, s.text[before], backslashes)
	if after == end {
		return 0
	}
	return end
}

// shellCode reports whether an option such as -c precedes the quote before s.at, so that the quoted text is
// a command.
func (s *scanner) shellCode() bool {
	const longest = 16
	before := strings.TrimRight(s.text[max(0, s.at-longest):s.at], "\\\"' ,\t")
	option := before[strings.LastIndexAny(before, " \t\"'")+1:]
	return len(option) > 1 && option[0] == '-' && option[1] != '-' && option[len(option)-1] == 'c'
}

// isScheme reports whether a word is the scheme of an Authorization header.
func isScheme(word string) bool {
	return strings.EqualFold(word, "bearer") || strings.EqualFold(word, "basic") || strings.EqualFold(word, "digest") ||
		strings.EqualFold(word, "token")
}

// isReference reports whether the value at position i refers to a secret elsewhere: it is a variable, as in
// $API_KEY, the output of a command, as in $(…), or the placeholder TOKEN of messages. The scheme of an
// Authorization header may precede it.
func (s *scanner) isReference(i int) bool {
	end := i
	for end < len(s.text) && isAlphanumeric(s.text[end]) {
		end++
	}
	if isScheme(s.text[i:end]) && s.skip(end, " \t") > end {
		i = s.skip(end, " \t")
	}
	rest := s.text[i:]
	if strings.HasPrefix(rest, "TOKEN") {
		return len(rest) == 5 || !isNameByte(rest[5]) && !isWordByte(rest[5])
	}
	if strings.HasPrefix(rest, "$(") {
		return true
	}
	name, found := strings.CutPrefix(rest, "$")
	name = strings.TrimPrefix(name, "{")
	size := len(name) - len(strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))
	name = strings.TrimPrefix(name[size:], "}")
	if !found || size == 0 {
		return false
	}
	_, quote := s.quote(len(s.text) - len(name))
	quoted := i > 0 && (s.text[i-1] == '"' || s.text[i-1] == '\'')
	return name == "" || quote > len(s.text)-len(name) || !quoted && isSpace(name[0])
}

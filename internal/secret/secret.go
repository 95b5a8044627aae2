// Package secret masks secrets in what easyrl prints and writes: all of a URL but its scheme,
// host, port and harmless path, the values of options, variables and headers that are named
// like a secret, and words that have the form of one.
package secret

import "strings"

const (
	// stars stand for a secret.
	stars = "***"
	// passes bounds how often a text is masked until it stays as it is. Texts seldom need
	// more than one pass and a second that changes nothing.
	passes = 8
	// most bounds the bytes that rules may examine for each byte of a text. A text made to
	// take more is hidden as a whole.
	most = 64
)

// Hide masks the secrets in text with stars. A text that it returned stays as it is. It takes
// time linear in the text.
func Hide(text string) string { return settle(text, false) }

// Arguments masks the secrets of a command in TOML or as a shell line, as Hide does, and its
// words and values of options that look random. Paths stay.
func Arguments(text string) string { return settle(text, true) }

// Hidden reports whether text has stars where Hide or Arguments puts them, rather than stars
// of its own within a word.
func Hidden(text string) bool {
	if !strings.Contains(text, stars) {
		return false
	}
	for _, command := range []bool{false, true} {
		s := scanner{text: text, command: command}
		s.scan()
		if s.hidden {
			return true
		}
	}
	return false
}

// settle masks text until it stays as it is, or hides all of it.
func settle(text string, command bool) string {
	for range passes {
		s := scanner{text: text, command: command}
		shown := s.scan()
		if shown == text {
			return text
		}
		text = shown
	}
	return stars
}

// A scanner masks a text in one pass from left to right. A rule that looks ahead masks and
// skips what it looked at, so that the time stays linear.
type scanner struct {
	text    string
	command bool // text is a command
	hidden  bool // a secret was hidden before
	at      int  // position of the next rule
	out     strings.Builder
	done    int    // text[:done] is in out
	login   string // letters of the program's short options that take a password
	looked  int    // bytes that rules examined ahead of at
}

// scan returns the masked text.
func (s *scanner) scan() string {
	for s.at < len(s.text) {
		if s.looked > most*len(s.text) {
			return stars
		}
		c := s.text[s.at]
		switch {
		case c == '-' && s.privateKey():
		case c == ':' && s.slashes(s.at+1) > 0:
			s.link(s.at+1, true)
		case (c == '/' || c == '\\') && s.starts(s.at) && s.slashes(s.at) > 0:
			s.link(s.at, false)
		case c == '%' && encoded(s.text[s.at:]) > 0:
			s.star(s.at+encoded(s.text[s.at:]), trimEnd(s.text, s.at, s.linkEnd(s.at)))
		case c == '@':
			s.userAndPassword()
		case c == '*' && strings.HasPrefix(s.text[s.at:], stars):
			s.ownStars()
		case isName(c) && (s.at == 0 || !isName(s.text[s.at-1]) || s.escape(s.at-1)):
			s.word()
		default:
			if strings.IndexByte("\n|;&", c) >= 0 {
				s.login = ""
			}
			s.at++
		}
	}
	return s.out.String() + s.text[s.done:]
}

// star masks text[from:to], with the stars around it, and goes on after it.
func (s *scanner) star(from, to int) {
	from = max(from, s.done)
	if from >= to {
		s.at = max(s.at+1, to)
		return
	}
	if from > s.done && s.text[from-1] == '*' { // take the word along, or Hidden would see stars of its own
		for from > s.done && (s.text[from-1] == '*' || isName(s.text[from-1])) {
			from--
		}
	}
	for to < len(s.text) && s.text[to] == '*' {
		to++
	}
	s.at = to
	s.hidden = s.hidden || s.text[from:to] == stars
	s.out.WriteString(s.text[s.done:from])
	s.out.WriteString(stars)
	s.done = to
}

// ownStars skips stars, which hide a secret if they are a word.
func (s *scanner) ownStars() {
	end := s.at + len(s.text[s.at:]) - len(strings.TrimLeft(s.text[s.at:], "*"))
	starts := s.at == 0 || !isName(s.text[s.at-1]) && s.text[s.at-1] != '*'
	word := end-s.at == len(stars) && starts && (end == len(s.text) || !wordy(s.text[end]) || s.text[end] == '@')
	s.hidden = s.hidden || word
	s.at = end
}

// word applies the rules for the word at s.at.
func (s *scanner) word() {
	end := s.at
	for end < len(s.text) && isName(s.text[end]) {
		end++
	}
	s.looked += end - s.at
	start, name := s.at, s.text[s.at:end]
	switch {
	case s.named(end):
	case s.shortOption(end):
	case strings.EqualFold(name, "bearer") && s.bearer(end):
	case s.token():
	case s.command && s.randomWord():
	default:
		if letters := passwordOptions(name); letters != "" {
			s.login = letters
		}
		if s.at = end; s.escape(start) {
			s.at = start + 1
		}
	}
}

// escape reports whether the letter at position i may be that of an escape, as in \n, so that
// a word may start after it.
func (s *scanner) escape(i int) bool {
	return i > 0 && s.text[i-1] == '\\' && strings.IndexByte("nrt", s.text[i]) >= 0
}

// token masks a word with the form of a known kind of secret.
func (s *scanner) token() bool {
	size, looked := tokenSize(s.text[s.at:])
	s.looked += looked
	if size == 0 {
		return false
	}
	for s.at+size < len(s.text) && (wordy(s.text[s.at+size]) || s.text[s.at+size] == '.') {
		size++
	}
	s.star(s.at, trimEnd(s.text, s.at, s.at+size))
	return true
}

// bearer masks the word after "Bearer", which ends at end, if it is long or has a digit.
func (s *scanner) bearer(end int) bool {
	from := s.skip(end, " \t")
	if from == end {
		return false
	}
	to := from
	for to < len(s.text) && wordy(s.text[to]) || to < len(s.text) && s.text[to] == '.' {
		to++
	}
	s.looked += to - end
	if word := s.text[from:to]; word != stars && len(word) < 20 && !strings.ContainsAny(word, "0123456789") {
		return false
	}
	s.star(from, trimEnd(s.text, from, to))
	return true
}

// randomWord masks a word of a command that looks random.
func (s *scanner) randomWord() bool {
	if s.at > 0 && !strings.ContainsRune(wordBounds, rune(s.text[s.at-1])) {
		return false
	}
	size := strings.IndexAny(s.text[s.at:], wordBounds)
	if size < 0 {
		size = len(s.text) - s.at
	}
	s.looked += size
	if !random(s.text[s.at : s.at+size]) {
		return false
	}
	s.star(s.at, s.at+size)
	return true
}

// wordBounds separate the words of a command.
const wordBounds = " \t\r\n\"'=,;()[]{}<>|&\\"

// privateKey masks the body of a private key in PEM.
func (s *scanner) privateKey() bool {
	const begin, shut, longest = "-----BEGIN ", "-----", 64
	if !strings.HasPrefix(s.text[s.at:], begin) {
		return false
	}
	from := s.at + len(begin)
	size := strings.Index(s.text[from:min(from+longest, len(s.text))], shut)
	if size < 0 || !strings.Contains(s.text[from:from+size], "PRIVATE KEY") {
		return false
	}
	from += size + len(shut)
	s.star(from, s.until(from, "-----END "))
	return true
}

// starts reports whether position i starts a word.
func (s *scanner) starts(i int) bool {
	return i == 0 || !wordy(s.text[i-1]) && s.text[i-1] != '*'
}

// wordy reports whether a byte belongs to a word, rather than separating words.
func wordy(c byte) bool {
	return c > ' ' && strings.IndexByte("\"'`,;:=()[]{}<>|&\\/.", c) < 0 && c != 0x7f
}

// isName reports whether a byte may be in the name of an option, variable or header.
func isName(c byte) bool {
	return isAlphanumeric(c) || c == '_' || c == '-' || c == '.'
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// trimEnd returns the end of text[from:to] without punctuation of the sentence around it.
func trimEnd(text string, from, to int) int {
	return from + len(strings.TrimRight(text[from:max(from, to)], "'),;:.]}"))
}

// Package secret masks secrets in the texts that easyrl prints and writes: all of a URL except its scheme,
// host, port and harmless path; the values of options, variables and headers whose names suggest a
// secret; and words that have the form of a known kind of secret.
//
// It works by heuristics: it may mask a harmless word or miss a secret in an unknown form.
package secret

import "strings"

const (
	// stars replaces a secret.
	stars = "***"
	// maxPasses limits how often settle masks a text. Most texts need one pass, and a second one that
	// changes nothing.
	maxPasses = 8
	// maxLooked limits the bytes that rules may examine per byte of a text, so that masking takes
	// linear time. If a text needs more, stars replace all of it.
	maxLooked = 64
)

// Hide replaces the secrets in text with stars. Hide(Hide(text)) equals Hide(text). It takes time linear in
// the length of text.
func Hide(text string) string { return settle(text, false) }

// Arguments masks the secrets of a command, in TOML or as a shell line, as Hide does. It also masks words
// and values of options that look random, except paths.
func Arguments(text string) string { return settle(text, true) }

// Hidden reports whether text has stars where Hide or Arguments puts them, rather than only within words.
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

// settle masks text repeatedly until a pass changes nothing. If maxPasses do not suffice, it returns only
// stars. command means that text is a command.
func settle(text string, command bool) string {
	for range maxPasses {
		s := scanner{text: text, command: command}
		shown := s.scan()
		if shown == text {
			return text
		}
		text = shown
	}
	return stars
}

// A scanner masks a text in one pass from left to right. At each position, scan applies the rule for the
// byte there. A rule moves at past the bytes that it has handled. Rules that mask text call mask. A method that
// is a rule and returns a bool reports whether it applied; if not, it has changed nothing except looked.
//
// Positions are indices of bytes in text. Quotes may have backslashes before them, because a text may be
// quoted within another one, several times.
type scanner struct {
	text    string
	command bool            // whether text is a command
	hidden  bool            // whether stars that hide a secret were found in text
	at      int             // position at which the next rule applies
	out     strings.Builder // the masked text[:done]
	done    int             // end of the text that out already holds
	login   string          // letters of the current program's short options that take a password
	looked  int             // number of bytes that rules have examined ahead of at
}

// scan returns the masked text.
func (s *scanner) scan() string {
	for s.at < len(s.text) {
		if s.looked > maxLooked*len(s.text) {
			return stars
		}
		c := s.text[s.at]
		switch {
		case c == '-' && s.privateKey():
		case c == ':' && s.slashes(s.at+1) > 0:
			s.url(s.at+1, true)
		case (c == '/' || c == '\\') && s.starts(s.at) && s.slashes(s.at) > 0:
			s.url(s.at, false)
		case c == '%' && encodedSlashes(s.text[s.at:]) > 0:
			s.mask(s.at+encodedSlashes(s.text[s.at:]), trimEnd(s.text, s.at, s.linkEnd(s.at)))
		case c == '@':
			s.userAndPassword()
		case c == '*' && strings.HasPrefix(s.text[s.at:], stars):
			s.ownStars()
		case isNameByte(c) && (s.at == 0 || !isNameByte(s.text[s.at-1]) || s.escape(s.at-1)):
			s.word()
		default:
			if strings.IndexByte("\n|;&", c) >= 0 { // another command may follow
				s.login = ""
			}
			s.at++
		}
	}
	return s.out.String() + s.text[s.done:]
}

// mask writes stars in place of text[from:to] together with any stars next to it, and moves at after it.
func (s *scanner) mask(from, to int) {
	from = max(from, s.done)
	if from >= to {
		s.at = max(s.at+1, to)
		return
	}
	if from > s.done && s.text[from-1] == '*' { // mask the complete word, or the stars would be within it
		for from > s.done && (s.text[from-1] == '*' || isNameByte(s.text[from-1])) {
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

// ownStars skips stars in the text. If they are a complete word, they hide a secret.
func (s *scanner) ownStars() {
	end := s.at + len(s.text[s.at:]) - len(strings.TrimLeft(s.text[s.at:], "*"))
	starts := s.at == 0 || !isNameByte(s.text[s.at-1]) && s.text[s.at-1] != '*'
	word := end-s.at == len(stars) && starts && (end == len(s.text) || !isWordByte(s.text[end]) || s.text[end] == '@')
	s.hidden = s.hidden || word
	s.at = end
}

// word applies the rules for the word at s.at.
func (s *scanner) word() {
	end := s.at
	for end < len(s.text) && isNameByte(s.text[end]) {
		end++
	}
	s.looked += end - s.at
	start, name := s.at, s.text[s.at:end]
	switch {
	case s.namedSecret(end):
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

// escape reports whether the letter at position i may belong to an escape such as \n, so that a word may
// start after it.
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
	for s.at+size < len(s.text) && (isWordByte(s.text[s.at+size]) || s.text[s.at+size] == '.') {
		size++
	}
	s.mask(s.at, trimEnd(s.text, s.at, s.at+size))
	return true
}

// bearer masks the word after "Bearer", which ends at end, if it is long or has a digit.
func (s *scanner) bearer(end int) bool {
	from := s.skip(end, " \t")
	if from == end {
		return false
	}
	to := from
	for to < len(s.text) && isWordByte(s.text[to]) || to < len(s.text) && s.text[to] == '.' {
		to++
	}
	s.looked += to - end
	if word := s.text[from:to]; word != stars && len(word) < 20 && !strings.ContainsAny(word, "0123456789") {
		return false
	}
	s.mask(from, trimEnd(s.text, from, to))
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
	if !looksRandom(s.text[s.at : s.at+size]) {
		return false
	}
	s.mask(s.at, s.at+size)
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
	s.mask(from, s.until(from, "-----END "))
	return true
}

// starts reports whether position i starts a word.
func (s *scanner) starts(i int) bool {
	return i == 0 || !isWordByte(s.text[i-1]) && s.text[i-1] != '*'
}

// isWordByte reports whether a byte belongs to a word and does not separate words.
func isWordByte(c byte) bool {
	return c > ' ' && strings.IndexByte("\"'`,;:=()[]{}<>|&\\/.", c) < 0 && c != 0x7f
}

// isNameByte reports whether a byte may be in the name of an option, variable or header.
func isNameByte(c byte) bool {
	return isAlphanumeric(c) || c == '_' || c == '-' || c == '.'
}

// isSpace reports whether a byte is white space in ASCII.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// trimEnd returns the end of text[from:to] without punctuation at its end, which may belong to a sentence.
func trimEnd(text string, from, to int) int {
	return from + len(strings.TrimRight(text[from:max(from, to)], "'),;:.]}"))
}

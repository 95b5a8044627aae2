package secret

import "strings"

// private reports whether an option, variable, field or header of this name has a secret.
func private(name string) bool {
	const longest = 32 // bytes at the end of a name that decide
	name = name[max(0, len(name)-longest):]
	base := strings.TrimRight(name, "0123456789_-.")
	switch form := strings.ToUpper(base[strings.LastIndexAny(base, "-_.")+1:]); form {
	case "BASE", "VALUE", "B", "TEXT", "PLAIN", "STRING": // such as SECRET_KEY_BASE and TOKEN_B64
		base = strings.TrimRight(base[:len(base)-len(form)], "-_.")
	}
	last := base[strings.LastIndexAny(base, "-_.")+1:]
	var letters [longest]byte
	lower, start, upper := letters[:0], 0, true
	for i := range len(base) {
		c := base[i]
		if 'a' <= c && c <= 'z' {
			upper = false
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if i == len(base)-len(last) {
			start = len(lower)
		}
		if isAlphanumeric(c) {
			lower = append(lower, c)
		}
	}
	joined, word := string(lower), string(lower[start:])
	switch word {
	case "pass", "passin", "passout", "auth", "sig", "signature", "session", "sessionid", "sid", "jwt", "csrf",
		"bearer":
		return true
	case "key":
		if upper || name[0] == '-' && joined == "key" {
			return true
		}
	case "pwd":
		return !upper || joined != "pwd" // PWD is the folder
	case "oldpwd":
		return false
	}
	if before, ok := strings.CutSuffix(joined, "token"); ok && vocabulary(before) {
		return false
	}
	for _, kind := range [...]string{"key", "keys", "tokens"} {
		before, ok := strings.CutSuffix(joined, kind)
		if !ok {
			continue
		}
		for _, use := range [...]string{"api", "access", "secret", "private", "auth", "account", "signing",
			"encryption", "subscription", "master", "bearer", "refresh"} {
			if strings.HasSuffix(before, use) {
				return true
			}
		}
	}
	for _, kind := range [...]string{"token", "secret", "secrets", "password", "passwords", "passwd", "passphrase",
		"passcode", "pwd", "credential", "credentials", "authorization", "cookie", "cookies"} {
		if strings.HasSuffix(joined, kind) {
			return true
		}
	}
	return false
}

// vocabulary reports whether the word before "token" makes it one of a tokenizer's.
func vocabulary(before string) bool {
	for _, role := range [...]string{"bos", "eos", "eot", "eom", "pad", "unk", "sep", "cls", "mask", "stop", "special",
		"image", "think", "per", "next", "first", "last", "start", "end"} {
		if strings.HasSuffix(before, role) {
			return true
		}
	}
	return false
}

// isHeader reports whether the values of a header may have several words.
func isHeader(name string) bool {
	switch strings.ToLower(name) {
	case "authorization", "proxy-authorization", "cookie", "set-cookie":
		return true
	}
	return false
}

// isProse reports whether a name is a word that sentences have too.
func isProse(name string) bool {
	return strings.Trim(name[1:], "abcdefghijklmnopqrstuvwxyz") == "" && isAlphanumeric(name[0])
}

// passwordOptions returns the letters of a program's short options that take a password.
func passwordOptions(program string) string {
	switch program {
	case "curl":
		return "uUb"
	case "sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb", "mongosh", "mongo", "mongodump", "login", "7z":
		return "p"
	case "redis-cli", "http", "https", "xh":
		return "a"
	case "zip", "unzip":
		return "P"
	case "ldapsearch":
		return "w"
	case "ssh", "scp", "sftp", "rsync":
		return " " // none, even behind sshpass
	}
	return ""
}

// named masks the value of the name from s.at to end, if that is private.
func (s *scanner) named(end int) bool {
	name := s.text[s.at:end]
	_, shut := s.quote(end)
	quoted := shut > end
	next := s.skip(shut, " \t")
	switch {
	case next == len(s.text):
		return false
	case s.text[next] == '=':
		value := next + 1
		if value < len(s.text) && s.text[value] == '>' {
			value++
		}
		if strings.HasPrefix(s.text[next:], "==") || !private(name) {
			return false
		}
		switch argument := s.enclosed(value); {
		case next > end || argument < value:
		case argument == value: // empty, unless the word goes on behind the quote
			_, value = s.quote(value)
			if value == len(s.text) || !wordy(s.text[value]) {
				return false
			}
		case !s.shellCode():
			s.star(value, argument)
			return true
		}
		return s.value(value, false)
	case s.text[next] == ':':
		value := next + 1
		if value < len(s.text) && s.text[value] == '=' {
			value++
		}
		touches := next == end && value < len(s.text) && !isSpace(s.text[value]) && (s.at == 0 || s.text[s.at-1] != '/')
		clear := quoted || name[0] == '-' || isHeader(name) || !isProse(name) || s.startsLine() || touches
		if !clear || s.slashes(value) > 0 || strings.EqualFold(name, "pass") {
			return false
		}
		return private(name) && s.value(value, isHeader(name))
	case s.text[next] == '>' && s.at > 0 && s.text[s.at-1] == '<':
		return private(name) && s.element(next+1)
	case !private(name):
		return false
	}
	if value := s.namedValue(shut); value >= 0 {
		return s.value(value, false)
	}
	value := s.argument(end)
	if value < 0 || s.text[value] == '-' || isSwitch(name) {
		return false
	}
	before := byte(' ')
	if s.at > 0 {
		before = s.text[s.at-1]
	}
	_, open := s.quote(value)
	switch {
	case quoted && before != '"' && before != '\'': // the end of an argument
		return false
	case name[0] == '-', quoted && isHeader(name), open > value && isPassword(name):
		return s.value(value, false)
	case s.command && !isProse(name) && strings.IndexByte(" \t\n\"'", before) >= 0:
		return s.value(value, false)
	}
	return false
}

// element masks the content of an XML element from position i on.
func (s *scanner) element(i int) bool {
	size := strings.IndexByte(s.text[i:], '<')
	if size < 0 {
		size = len(s.text) - i
	}
	s.looked += size
	if size > 0 {
		s.star(i, i+size)
	}
	return size > 0
}

// namedValue returns the position of a value for the name before position i, as in
// {"name": "TOKEN", "value": "…"}, or -1.
func (s *scanner) namedValue(i int) int {
	const word = "value"
	i = s.skip(i, " \t\r\n,")
	if escape := s.skip(i, `\`); escape > i && strings.HasPrefix(s.text[escape:], "n") {
		i = s.skip(escape+1, " \t")
	}
	_, i = s.quote(i)
	if !strings.HasPrefix(s.text[i:], word) {
		return -1
	}
	_, i = s.quote(i + len(word))
	if i = s.skip(i, " \t"); i == len(s.text) || s.text[i] != ':' {
		return -1
	}
	return i + 1
}

// isPassword reports whether sentences have a password, rather than another word, in quotes
// behind this one.
func isPassword(name string) bool {
	return strings.EqualFold(name, "password") || strings.EqualFold(name, "passwd") ||
		strings.EqualFold(name, "passphrase")
}

// isSwitch reports whether an option's name tells that it has no value.
func isSwitch(name string) bool {
	verb, _, found := strings.Cut(strings.TrimLeft(name, "-"), "-")
	return found && (verb == "no" || verb == "use" || verb == "ask" || verb == "skip")
}

// argument returns the position of the argument behind the one that ends at end, or -1.
func (s *scanner) argument(end int) int {
	_, shut := s.quote(end)
	between := " \t"
	if shut > end {
		between = " \t\r\n,"
	}
	next := s.skip(shut, between)
	if next == shut || next == len(s.text) {
		return -1
	}
	if _, open := s.quote(next); open < len(s.text) && s.text[open] == '-' {
		return open
	}
	return next
}

// shortOption masks the password of the option from s.at to end, such as -u user:password or
// one of the program's.
func (s *scanner) shortOption(end int) bool {
	name := s.text[s.at:end]
	if len(name) < 2 || name[0] != '-' {
		return false
	}
	next := s.argument(end)
	switch {
	case name[1] != '-' && strings.IndexByte(s.login, name[1]) >= 0 && s.attached(s.at+2):
		return s.value(s.at+2, false)
	case name == "-u" || name == "--user" || name == "--proxy-user":
		if next < 0 && end+1 < len(s.text) && s.text[end] == '=' {
			next = end + 1
		}
		if next < 0 {
			return false
		}
		value := s.text[next:s.valueEnd(next)]
		user, password, found := strings.Cut(strings.Trim(value, `\"'`), ":")
		return found && user != "" && strings.Trim(password, "0123456789") != "" && s.value(next, false)
	case name[1] != '-' && strings.IndexByte(s.login, name[len(name)-1]) >= 0 && next >= 0 && s.text[next] != '-':
		return s.value(next, false)
	}
	return false
}

// attached reports whether the value of a short option starts at position i, without a space.
func (s *scanner) attached(i int) bool {
	_, i = s.quote(i)
	return i < len(s.text) && wordy(s.text[i])
}

// startsLine reports whether s.at starts a line or the content of brackets or quotes.
func (s *scanner) startsLine() bool {
	before := strings.TrimRight(s.text[s.done:s.at], " \t-")
	if before == "" {
		return s.done == 0
	}
	return strings.HasSuffix(before, `\n`) || strings.IndexByte("\n{([,\"'", before[len(before)-1]) >= 0
}

// skip returns the first position from i on whose byte is none of set.
func (s *scanner) skip(i int, set string) int {
	start := i
	for i < len(s.text) && strings.IndexByte(set, s.text[i]) >= 0 {
		i++
	}
	s.looked += i - start
	return i
}

// quote returns the number of backslashes before a quote at position i, and the position
// behind the quote. Without one, that is i.
func (s *scanner) quote(i int) (backslashes, end int) {
	at := s.skip(i, `\`)
	if at == len(s.text) || s.text[at] != '"' && s.text[at] != '\'' {
		return 0, i
	}
	return at - i, at + 1
}

// unquote returns the end of the quoted text that starts at position i, and the position
// behind the quote that closes it. In a text that is quoted n times, the quote has 2^n - 1
// backslashes before it, and each backslash is 2^n.
func (s *scanner) unquote(i int, mark byte, backslashes int) (end, behind int) {
	if backslashes&(backslashes+1) != 0 {
		backslashes = 0
	}
	run, start := 0, i
	defer func() { s.looked += i - start }()
	for ; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			run++
			continue
		case mark:
			if run%(2*(backslashes+1)) == backslashes {
				return i - backslashes, i + 1
			}
		}
		run = 0
	}
	return i, i
}

// quotedText returns where the text within the quotes at position i starts and ends, and the
// position behind them. Three quotes are quotes too. Without a quote, behind is i.
func (s *scanner) quotedText(i int) (from, to, behind int) {
	backslashes, open := s.quote(i)
	if open == i {
		return i, i, i
	}
	quote := s.text[i:open]
	if !strings.HasPrefix(s.text[open:], quote) || !strings.HasPrefix(s.text[open+len(quote):], quote) {
		to, behind = s.unquote(open, s.text[open-1], backslashes)
		return open, to, behind
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

// value masks the value at position i: a word, quoted text or a list of them, or the rest of
// the line for a header. References to variables stay.
func (s *scanner) value(i int, header bool) bool {
	i = s.skip(i, " \t")
	if i == len(s.text) || s.text[i] == '{' || s.isReference(i) {
		return false
	}
	if from := s.listStart(i); from > i {
		return s.list(from)
	}
	from, to, behind := s.quotedText(i)
	switch {
	case behind == i && header:
		to = s.lineEnd(i)
	case behind == i || s.valueEnd(i) > behind:
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
	s.star(from, to)
	return true
}

// isConstant reports whether a value says that there is no secret.
func isConstant(value string) bool {
	switch strings.ToLower(value[:min(len(value), 6)]) {
	case "true", "false", "null", "none", "nil":
		return true
	}
	return false
}

// listStart returns where the content of a list at position i starts, or i. Parentheses hold a
// list of quoted values.
func (s *scanner) listStart(i int) int {
	const golang = "[]string{"
	if strings.HasPrefix(s.text[i:], golang) {
		return i + len(golang)
	}
	_, open := s.quote(i + 1)
	if s.text[i] == '[' || s.text[i] == '(' && open > i+1 {
		return i + 1
	}
	return i
}

// list masks the quoted values of a list from position i on, or all of a list without quotes.
func (s *scanner) list(i int) bool {
	first := s.skip(i, " \t\r\n")
	if _, open := s.quote(first); open == first {
		size := strings.IndexByte(s.text[first:], ']')
		if size < 0 {
			size = len(s.text) - first
		}
		if size == 0 || s.text[first] == '{' {
			return false
		}
		s.star(first, first+size)
		return true
	}
	found := false
	for {
		i = s.skip(i, " \t\r\n,")
		from, to, behind := s.quotedText(i)
		if behind == i {
			return found
		}
		s.star(from, to)
		i, s.at, found = behind, behind, true
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
			case i == start || open < len(s.text) && wordy(s.text[open]):
				_, _, i = s.quotedText(i)
				if i < len(s.text) && !wordy(s.text[i]) && strings.IndexByte(`\"'`, s.text[i]) < 0 {
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
// because a space, a quote or another name is behind it.
func (s *scanner) separates(i int) bool {
	next := i + 1
	for next < len(s.text) && isName(s.text[next]) {
		next++
	}
	s.looked += next - i
	if next == i+1 {
		return next == len(s.text) || !wordy(s.text[next])
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
			if _, _, behind := s.quotedText(i + 1); behind > i+1 {
				i = behind
				continue
			}
		}
		if c == '\n' || c == '\r' || strings.HasPrefix(s.text[i:], `\r`) || strings.HasPrefix(s.text[i:], `\n`) {
			return i
		}
		if _, open := s.quote(i); open > i && (open == len(s.text) || !wordy(s.text[open])) {
			return i
		}
		i++
	}
	return i
}

// enclosed returns the end of the quoted text that begins with the name at s.at and goes on at
// position i, or 0.
func (s *scanner) enclosed(i int) int {
	before := s.at - 1
	if before < s.done || s.text[before] != '"' && s.text[before] != '\'' {
		return 0
	}
	backslashes := before - len(strings.TrimRight(s.text[:before], `\`))
	end, behind := s.unquote(i, s.text[before], backslashes)
	if behind == end {
		return 0
	}
	return end
}

// shellCode reports whether the text before the quote before s.at is an option such as -c, so
// that the quoted text is a command.
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

// isReference reports whether the value at position i is the name of a variable, as in
// $API_KEY, or TOKEN, which stands for one in messages. A scheme may be before it.
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
		return len(rest) == 5 || !isName(rest[5]) && !wordy(rest[5])
	}
	if strings.HasPrefix(rest, "$(") {
		return true
	}
	name, found := strings.CutPrefix(rest, "$")
	name = strings.TrimPrefix(name, "{")
	size := len(name) - len(strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))
	name = strings.TrimPrefix(name[size:], "}")
	return found && size > 0 && (name == "" || !wordy(name[0]))
}

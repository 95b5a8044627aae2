package secret

import "strings"

// namesSecret reports whether the name of an option, variable, field or header suggests that its value is a
// secret.
func namesSecret(name string) bool {
	const longest = 32 // bytes at the end of a name that count
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
		return !upper || joined != "pwd" // PWD is the working directory
	case "oldpwd":
		return false
	}
	if before, ok := strings.CutSuffix(joined, "token"); ok && isVocabularyToken(before) {
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

// isVocabularyToken reports whether the words before "token" in a name mean a token of a text, as in
// eos_token, not a secret.
func isVocabularyToken(before string) bool {
	for _, role := range [...]string{"bos", "eos", "eot", "eom", "pad", "unk", "sep", "cls", "mask", "stop", "special",
		"image", "think", "per", "next", "first", "last", "start", "end"} {
		if strings.HasSuffix(before, role) {
			return true
		}
	}
	return false
}

// isHeader reports whether name is a header whose value may have several words.
func isHeader(name string) bool {
	switch strings.ToLower(name) {
	case "authorization", "proxy-authorization", "cookie", "set-cookie":
		return true
	}
	return false
}

// isProse reports whether a name may also be an ordinary word of a sentence: only letters, in lower case
// after the first.
func isProse(name string) bool {
	return strings.Trim(name[1:], "abcdefghijklmnopqrstuvwxyz") == "" && isAlphanumeric(name[0])
}

// passwordOptions returns the letters of a program's short options that take a password. It is empty for an
// unknown program, and a space for a known one without such options.
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
		return " " // none, even after sshpass
	}
	return ""
}

// namedSecret masks the value of the name from s.at to end, if the name suggests a secret. The value may
// follow "=", ":" or a space, or be the content of an XML element or a field "value" next to the name.
func (s *scanner) namedSecret(end int) bool {
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
		if strings.HasPrefix(s.text[next:], "==") || !namesSecret(name) {
			return false
		}
		switch argument := s.enclosed(value); {
		case next > end || argument < value:
		case argument == value: // empty, unless the word continues after the quote
			_, value = s.quote(value)
			if value == len(s.text) || !isWordByte(s.text[value]) {
				return false
			}
		case !s.shellCode():
			s.mask(value, argument)
			return true
		}
		return s.value(value, false)
	case s.text[next] == ':':
		value := next + 1
		if value < len(s.text) && s.text[value] == '=' {
			value++
		}
		touches := next == end && value < len(s.text) && !isSpace(s.text[value]) && (s.at == 0 || s.text[s.at-1] != '/')
		named := quoted || name[0] == '-' || isHeader(name) || !isProse(name) || s.startsLine() || touches
		if !named || s.slashes(value) > 0 || strings.EqualFold(name, "pass") {
			return false
		}
		return namesSecret(name) && s.value(value, isHeader(name))
	case s.text[next] == '>' && s.at > 0 && s.text[s.at-1] == '<':
		return namesSecret(name) && s.element(next+1)
	case !namesSecret(name):
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
	end := s.until(i, "<")
	if end > i {
		s.mask(i, end)
	}
	return end > i
}

// namedValue returns the position of the value in a form such as {"name": "TOKEN", "value": "…"}, where i is
// the position after the name, or -1 if the form differs.
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

// isPassword reports whether a sentence with this word followed by quotes has a password in the quotes.
func isPassword(name string) bool {
	return strings.EqualFold(name, "password") || strings.EqualFold(name, "passwd") ||
		strings.EqualFold(name, "passphrase")
}

// isSwitch reports whether an option takes no value, judging by the verb that its name begins with.
func isSwitch(name string) bool {
	verb, _, found := strings.Cut(strings.TrimLeft(name, "-"), "-")
	return found && (verb == "no" || verb == "use" || verb == "ask" || verb == "skip")
}

// argument returns the position of the argument after the one that ends at end, or -1 if there is none.
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

// shortOption masks the password of the short option from s.at to end: -u user:password of any program, or
// one of the current program's login options.
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
		ids := strings.Trim(password, "0123456789") == "" && !strings.Contains(s.login, "u") // docker -u 1000:1000
		return found && user != "" && !ids && s.value(next, false)
	case name[1] != '-' && strings.IndexByte(s.login, name[len(name)-1]) >= 0 && next >= 0 && s.text[next] != '-':
		return s.value(next, false)
	}
	return false
}

// attached reports whether the value of a short option starts at position i, without a space.
func (s *scanner) attached(i int) bool {
	_, i = s.quote(i)
	return i < len(s.text) && isWordByte(s.text[i])
}

// startsLine reports whether s.at starts a line or the content of brackets or quotes.
func (s *scanner) startsLine() bool {
	before := strings.TrimRight(s.text[s.done:s.at], " \t-")
	if before == "" {
		return s.done == 0
	}
	return strings.HasSuffix(before, `\n`) || strings.IndexByte("\n{([,\"'", before[len(before)-1]) >= 0
}

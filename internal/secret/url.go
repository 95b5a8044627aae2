package secret

import "strings"

// slashes returns the size of two slashes at position i, which JSON may escape, or 0 if there are none.
func (s *scanner) slashes(i int) int {
	for _, pair := range [...]string{"//", `\/\/`} {
		if strings.HasPrefix(s.text[min(i, len(s.text)):], pair) {
			return len(pair)
		}
	}
	return 0
}

// encodedSlashes returns the size of two percent-encoded slashes at the start of text, or 0 if there are
// none. They may be encoded several times.
func encodedSlashes(text string) int {
	rest := text
	for range 2 {
		if !strings.HasPrefix(rest, "%") {
			return 0
		}
		rest = rest[1:]
		for strings.HasPrefix(rest, "25") {
			rest = rest[2:]
		}
		if len(rest) < 2 || !strings.EqualFold(rest[:2], "2f") {
			return 0
		}
		rest = rest[2:]
	}
	return len(text) - len(rest)
}

// linkEnd returns the end of the URL that contains position i. The URL ends before a space, a quote, or a
// separator that the scheme of another URL follows.
func (s *scanner) linkEnd(i int) int {
	start := i
	defer func() { s.looked += i - start }()
	for i < len(s.text) {
		switch c := s.text[i]; {
		case isSpace(c) || strings.IndexByte("\"<>`", c) >= 0:
			return i
		case c == '\'' && (i+1 == len(s.text) || !isWordByte(s.text[i+1])):
			return i
		case c == '\\':
			end := i + 1
			for end < len(s.text) && s.text[end] == '\\' {
				end++
			}
			if end == len(s.text) || strings.IndexByte("\"' nrt", s.text[end]) >= 0 {
				return i
			}
			i = end
			continue
		case c == ',' || c == ';' || c == '|':
			scheme := i + 1
			for scheme < len(s.text) && (isNameByte(s.text[scheme]) || s.text[scheme] == '+') {
				scheme++
			}
			s.looked += scheme - i
			if strings.HasPrefix(s.text[scheme:], ":") && s.slashes(scheme+1) > 0 {
				return i
			}
		}
		i++
	}
	return i
}

// url masks the URL whose slashes are at position i. scheme means that it has a scheme. Otherwise it may
// not be a URL, so url is more careful: it masks no malformed port, and a query only if the host looks
// like one.
func (s *scanner) url(i int, scheme bool) {
	end := s.linkEnd(i)
	lastAt := i + strings.LastIndexByte(s.text[i:end], '@')
	slashes := i + s.slashes(i)
	if scheme && lastAt < i && badPort(s.text[slashes:s.hostEnd(slashes, end)]) > 0 { // a password with a space
		const maxRest = 64 // bytes after the space that may belong to the password
		rest, _, _ := strings.Cut(s.text[end:min(end+maxRest, len(s.text))], "\n")
		s.looked += len(rest)
		if at := strings.IndexByte(rest, '@'); at >= 0 {
			s.mask(slashes, end+at)
			return
		}
	}
	for {
		i += s.slashes(i)
		host := s.authority(i, end, lastAt, scheme)
		next := s.path(i, host, end, scheme)
		if next < 0 {
			break
		}
		i, scheme = next, true
	}
	s.at = max(s.at+1, end)
}

// authority masks the user, password and malformed port between position i and end, and
// returns the end of the host. lastAt is the URL's last "@", if that is after i.
func (s *scanner) authority(i, end, lastAt int, scheme bool) int {
	host := s.hostEnd(i, end)
	user := i + strings.LastIndexByte(s.text[i:host], '@')
	port := badPort(s.text[i:host])
	if user < i && port > 0 && lastAt > host { // a password with a slash or question mark
		user = lastAt
		host = s.hostEnd(lastAt, end)
	}
	if at := strings.LastIndex(s.text[i:host], "%40"); at >= 0 {
		user = max(user, i+at)
	}
	s.looked += host - i
	switch {
	case user >= i:
		s.mask(i, user)
	case port > 0 && scheme:
		s.mask(i+port, trimEnd(s.text, i+port, host))
	}
	return host
}

// hostEnd returns the end of the user, password and host that start at position i.
func (s *scanner) hostEnd(i, end int) int {
	if size := strings.IndexAny(s.text[i:end], "/?#\\"); size >= 0 {
		return i + size
	}
	return end
}

// badPort returns the position in host of a port that is not a number, or 0 if there is none. Such a port is
// probably a password whose "@" and host are cut off. A placeholder such as the word port does not count.
func badPort(host string) int {
	colon := strings.LastIndexByte(host[:trimEnd(host, 0, len(host))], ':')
	if colon < 0 || strings.Contains(host[colon:], "]") || isPlaceholder(host[colon+1:]) {
		return 0
	}
	rest := strings.TrimLeft(host[colon+1:], "0123456789")
	if rest == "" || !isAlphanumeric(rest[0]) && strings.IndexByte("!$%&*+-=^_~", rest[0]) < 0 {
		return 0
	}
	return colon + 1
}

// isPlaceholder reports whether a message has a word in place of a port.
func isPlaceholder(port string) bool {
	return strings.Contains(strings.ToLower(port), "port") || strings.HasPrefix(port, "%d")
}

// path masks what looks like a secret in the path of the URL that starts at position i and
// whose host ends at position at, and all of its query and fragment. It returns the slashes
// of a URL within the path, or -1.
func (s *scanner) path(i, at, end int, scheme bool) int {
	host := s.text[i:at]
	local := host == ""
	hook := strings.Contains(strings.ToLower(host), "hook")
	for at < end {
		if c := s.text[at]; c == '?' || c == '#' {
			if scheme || strings.ContainsAny(host, ".@") {
				s.mask(at+1, trimEnd(s.text, at+1, end))
			}
			return -1
		}
		if at > i && s.text[at-1] == ':' && s.slashes(at) > 0 && at > i+len(host) {
			return at
		}
		from := at + 1 // after the slash
		at = from
		for at < end && strings.IndexByte("/?#\\", s.text[at]) < 0 {
			at++
		}
		if !local {
			named := strings.Contains(strings.ToLower(s.text[from:at]), "hook")
			s.pathSegment(from, at, hook && !named)
			hook = hook || named
		}
	}
	return -1
}

// pathSegment masks parts of text[from:to], a segment of a URL's path, that look like a secret. hook means
// that the host or an earlier segment names a webhook. Then any segment with a digit and more than three
// characters looks like one.
func (s *scanner) pathSegment(from, to int, hook bool) {
	to = trimEnd(s.text, from, to)
	part := s.text[from:to]
	digits := strings.IndexAny(part, "0123456789")
	colon := strings.IndexByte(part, ':')
	user := strings.LastIndexByte(part, '@')
	const botID = 6 // minimum number of digits of a bot's ID, as in 123456:token
	switch {
	case looksRandom(part), hook && digits >= 0 && len(part) > 3, digits >= 0 && colon-digits >= botID:
		s.mask(from, to)
	case user > 0 && colon > 0 && colon < user:
		s.mask(from, from+user)
	case part == stars || strings.HasPrefix(part, stars+"@"):
		s.mask(from, from+len(stars))
	default:
		parameter := false
		for i := range len(part) {
			switch c := part[i]; {
			case c == ';':
				parameter = true
			case c == '%' && encodedSlashes(part[i:]) > 0:
				s.mask(from+i+encodedSlashes(part[i:]), to)
				return
			case c == '=' && (parameter || namesSecret(part[:i])):
				s.mask(from+i+1, to)
				return
			}
		}
	}
}

// userAndPassword masks "user:password" before the "@" at s.at.
func (s *scanner) userAndPassword() {
	at := s.at
	s.at++
	size := 0
	for at+1+size < len(s.text) && (isNameByte(s.text[at+1+size]) || s.text[at+1+size] == '[') {
		size++
	}
	s.looked += size
	host := s.text[at+1 : at+1+size]
	if strings.Trim(host, "0123456789") == "" || host == "k" || host == "sha256" { // pass@8, image@sha256:…
		return
	}
	from := at
	for from > s.done && strings.IndexByte(" \t\r\n\"'`<>/@", s.text[from-1]) < 0 {
		from--
	}
	s.looked += at - from
	colon := from + strings.IndexByte(s.text[from:at], ':')
	if colon < from || colon+1 == at {
		return
	}
	from += strings.LastIndexAny(s.text[from:colon], "=,;|()[]{}\\") + 1
	if from < colon {
		s.mask(from, at)
	}
}

// Package secret masks secrets in what easyrl prints and writes: all of a URL but its scheme,
// host, port and harmless path, and values of options, variables and headers that are named
// like a secret or look like one.
package secret

import (
	"regexp"
	"slices"
	"strings"
)

const (
	stars = "***"
	// example is a value that Hide masks wherever it masks any.
	example = "sk-0123456789abcdefABCDEF"
	quoted  = `(?:[^"\\]|\\.)*`
	link    = "(?i):?(?://|%2f%2f)[^\\s\"`<>]+"
	login   = "[^\\s\"'`<>=,;/@:()*]+:[^\\s\"'`<>/@]+@([\\w\\[])"
	known   = `\b(?:sk-|sk_live_|sk_test_|gh[opsur]_|github_pat_|xox[a-z]-|hf_[A-Za-z0-9]{8}|AKIA|ASIA|eyJ|glpat-|AIza|npm_|gsk_|nvapi-)` +
		`[A-Za-z0-9_.=+-]{12,}`
	bearer = `(?i)\b(bearer[ \t]+)[^\s"',*]{6,}`
	header = `(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:key|token|secret)|api-key)(["']?:[ \t]*["']?)[^"'\r\n]+`
	assign = `([A-Za-z_][\w.-]*|--?[A-Za-z_][\w.-]*)=`
	listed = `([A-Za-z_][\w.-]*|--?[A-Za-z_][\w.-]*)"\s*[,:]\s*"`
	option = `(--?[A-Za-z_][\w.-]*)[ \t]+`
	value  = `^(?:\\?"` + quoted + `"|'[^']*'|[^\s"'\\&,;]+)`
	word   = `^(?:"` + quoted + `"|'[^']*'|[^\s"'-][^\s"']*)`
	basic  = `((?:^|[\s"'])(?:-u|--user|--proxy-user)(?:["',\s]+|=))[^\s"':]+:[^\s"']+`
	short  = `((?:^|[\s"'])-p)([^\s"',]*(?:[A-Z][^\s"',]*|[0-9][^\s"',]*[a-z][^\s"',]*|[a-z][^\s"',]*[0-9][^\s"',]*))`
)

// Hide masks the secrets in text with stars. A text that it returned stays as it is. It takes
// time linear in the text.
func Hide(text string) string {
	if strings.Contains(text, "//") || strings.Contains(strings.ToLower(text), "%2f%2f") {
		text = regexp.MustCompile(link).ReplaceAllStringFunc(text, links)
	}
	if strings.Contains(text, "@") {
		text = regexp.MustCompile(login).ReplaceAllString(text, stars+"@$1")
	}
	text = regexp.MustCompile(known).ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, "sk-") && !strings.ContainsAny(s, "0123456789") {
			return s
		}
		return stars
	})
	lower := strings.ToLower(text)
	if strings.Contains(lower, "bearer") {
		text = regexp.MustCompile(bearer).ReplaceAllString(text, "${1}"+stars)
	}
	if strings.Contains(text, ":") {
		headers := regexp.MustCompile(header)
		text = headers.ReplaceAllStringFunc(text, func(s string) string {
			if strings.HasSuffix(s, ": Bearer TOKEN") { // the form of a header in messages
				return s
			}
			return headers.ReplaceAllString(s, "${1}${2}"+stars)
		})
	}
	if strings.Contains(text, "-u") || strings.Contains(text, "-p") {
		text = regexp.MustCompile(basic).ReplaceAllString(text, "${1}"+stars)
		text = regexp.MustCompile(short).ReplaceAllString(text, "${1}"+stars)
	}
	if strings.Contains(text, "=") {
		text = named(text, assign, value)
	}
	if strings.Contains(text, `"`) {
		text = named(text, listed, `^`+quoted)
	}
	if strings.Contains(text, "-") {
		text = named(text, option, word)
	}
	return text
}

// Arguments masks the secrets of a command in TOML or as a shell line, as Hide does, and its
// words and values of options that look random. Paths stay.
func Arguments(text string) string {
	words := regexp.MustCompile(`[^\s"'=,;\[\]\\]+`)
	return words.ReplaceAllStringFunc(Hide(text), func(s string) string {
		if !strings.Contains(s, "/") && random(s) {
			return stars
		}
		return s
	})
}

// Hidden reports whether text has stars where Hide puts them.
func Hidden(text string) bool {
	return strings.Contains(text, stars) && Hide(strings.ReplaceAll(text, stars, example)) == Hide(text)
}

// named masks the values after names of secrets. The pattern before finds a name and what
// separates it from its value, which the pattern after matches.
func named(text, before, after string) string {
	value := regexp.MustCompile(after)
	var out strings.Builder
	end := 0
	for _, at := range regexp.MustCompile(before).FindAllStringSubmatchIndex(text, -1) {
		if at[0] < end || !private(text[at[2]:at[3]]) {
			continue
		}
		held := value.FindString(text[at[1]:])
		if held == "" {
			continue
		}
		open := held[:len(held)-len(strings.TrimLeft(held, `\"'`))]
		shut := held[len(strings.TrimRight(held, `\"'`)):]
		if len(open) == len(held) {
			shut = ""
		}
		out.WriteString(text[end:at[1]] + open + stars + shut)
		end = at[1] + len(held)
	}
	return out.String() + text[end:]
}

// private reports whether an option, variable or field of this name has a secret.
func private(name string) bool {
	upper := name == strings.ToUpper(name)
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_.", r) })
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if last == "key" {
		before := ""
		if len(words) > 1 {
			before = words[len(words)-2]
		}
		return upper || name[0] == '-' && len(words) == 1 ||
			slices.Contains([]string{"api", "access", "secret", "private", "auth", "account", "signing", "encryption"}, before)
	}
	for _, end := range []string{"token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey", "secretkey", "credential",
		"credentials", "authorization"} {
		if last == end || len(last) > len(end) && strings.HasSuffix(last, end) {
			return true
		}
	}
	return slices.Contains([]string{"pwd", "pass", "auth", "bearer", "cookie", "session", "private", "signature", "sig", "api"}, last)
}

// links masks one or more URLs that commas, semicolons or bars separate. text begins with the
// slashes of the first.
func links(text string) string {
	next := regexp.MustCompile(`(?i)[,;|]['\s]*[a-z][a-z0-9+.-]*://`)
	var out strings.Builder
	start := 0
	for _, at := range next.FindAllStringIndex(text, -1) {
		scheme := at[1] - len("://")
		out.WriteString(url(text[start:at[0]]) + text[at[0]:scheme])
		start = scheme
	}
	return out.String() + url(text[start:])
}

// url masks a URL from the colon or slashes after its scheme on.
func url(text string) string {
	if !strings.Contains(text[:min(len(text), 3)], "//") { // the slashes are encoded
		at := strings.Index(strings.ToLower(text), "%2f%2f") + len("%2f%2f")
		return text[:at] + stars
	}
	at := strings.Index(text, "//") + len("//")
	head, rest := text[:at], text[at:]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	port := host[strings.LastIndex(host, ":")+1:]
	broken := len(port) < len(host) && strings.Trim(port, "0123456789'),;:.]}*") != "" && !strings.Contains(host, "]")
	if user := strings.LastIndex(host, "@"); user >= 0 {
		host = stars + host[user:]
	} else if user := strings.LastIndex(rest, "@"); user > end && broken { // a slash in the password
		host, path = stars+rest[user:], ""
		if slash := strings.IndexAny(host, "/?#"); slash >= 0 {
			host, path = host[:slash], host[slash:]
		}
	}
	if i := strings.Index(strings.ToLower(host), "%40"); i >= 0 {
		host = stars + host[i:]
	}
	tail := ""
	if query := strings.IndexAny(path, "?#"); query >= 0 && len(path) > query+1 {
		after := len(path)
		if mark := strings.IndexAny(path[query:], `'`); mark >= 0 {
			after = query + mark
		}
		shut := path[after:]
		after = query + 1 + len(strings.TrimRight(path[query+1:after], "),;:.]}"))
		tail = path[query:query+1] + stars + path[after:len(path)-len(shut)] + shut
		path = path[:query]
	}
	return head + host + segments(path) + tail
}

// segments masks what looks like a secret in a URL's path.
func segments(path string) string {
	parts := strings.Split(path, "/")
	hook := false
	for i, part := range parts {
		core := strings.TrimRight(part, "'),;:.]}")
		switch at := strings.LastIndex(core, "@"); {
		case at > 0 && strings.Contains(core[:at], ":"):
			parts[i] = stars + part[at:]
		case random(core) || hook && len(core) >= 8 && strings.ContainsAny(core, "0123456789"):
			parts[i] = stars + part[len(core):]
		}
		hook = hook || slices.Contains([]string{"hook", "hooks", "webhook", "webhooks", "services"}, strings.ToLower(core))
	}
	return strings.Join(parts, "/")
}

// random reports whether a word looks like a secret: one with a known prefix, a UUID, a long
// hexadecimal number, or a long word whose characters change their kind often.
func random(word string) bool {
	if regexp.MustCompile(`^(?:bot)?\d{6,}:`).MatchString(word) {
		return true
	}
	if regexp.MustCompile(`^`+known).MatchString(word) && (word[:3] != "sk-" || strings.ContainsAny(word, "0123456789")) {
		return true
	}
	hex := strings.ReplaceAll(word, "-", "")
	if len(hex) >= 24 && strings.Trim(strings.ToLower(hex), "0123456789abcdef") == "" {
		return true
	}
	return len(word) >= 20 && !readable(word)
}

// readable reports whether a word's characters seldom change between lower case, upper case
// and digits, as in the names of models, but not in random ones.
func readable(word string) bool {
	changes, letters, before := 0, 0, 0
	for _, r := range word {
		kind := 0
		switch {
		case r >= 'a' && r <= 'z':
			kind = 1
		case r >= 'A' && r <= 'Z':
			kind = 2
		case r >= '0' && r <= '9':
			kind = 3
		}
		if kind > 0 {
			letters++
		}
		if kind > 0 && before > 0 && kind != before {
			changes++
		}
		before = kind
	}
	return changes*100 < letters*38
}

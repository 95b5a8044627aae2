package remote

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Endpoint is the address of an inference server.
type Endpoint struct {
	Kind string // one of Names; empty if Dial must detect it
	URL  string // without a trailing slash
}

// ParseEndpoint parses URL or KIND=URL. kind is the kind of a URL without KIND.
func ParseEndpoint(text, kind string) (Endpoint, error) {
	e := Endpoint{Kind: kind, URL: text}
	if prefix, rest, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(prefix, ":/") {
		e.Kind, e.URL = prefix, rest
	}
	u, err := url.Parse(e.URL)
	if err != nil || !isAddress(u) {
		return Endpoint{}, fmt.Errorf("%.200q, expected a URL such as http://127.0.0.1:8000", text)
	}
	if e.Kind != "" && !slices.Contains(Names(), e.Kind) {
		return Endpoint{}, fmt.Errorf("%.200q, expected one of %s before the URL", text,
			`"`+strings.Join(Names(), `", "`)+`"`)
	}
	e.URL = strings.TrimRight(e.URL, "/")
	return e, nil
}

// isAddress reports whether u is an HTTP URL with a host and, apart from a path, nothing else.
func isAddress(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" &&
		u.Fragment == ""
}

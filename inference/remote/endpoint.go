package remote

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Endpoint names an inference server.
type Endpoint struct {
	Kind Kind // Easyrl, VLLM or SGLang; empty asks the server
	URL  string
}

// trainable lists the kinds of servers that take weights.
func trainable() []Kind { return []Kind{Easyrl, VLLM, SGLang} }

// ParseEndpoint parses URL or KIND=URL. kind applies to a URL alone.
func ParseEndpoint(text string, kind Kind) (Endpoint, error) {
	e := Endpoint{Kind: kind, URL: text}
	if prefix, rest, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(prefix, ":/") {
		e.Kind, e.URL = Kind(prefix), rest
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Endpoint{}, fmt.Errorf("%.200q, expected a URL such as http://127.0.0.1:8000", text)
	}
	if e.Kind != "" && !slices.Contains(trainable(), e.Kind) {
		return Endpoint{}, fmt.Errorf("%.200q, expected one of %q, %q, %q before the URL", text, Easyrl, VLLM, SGLang)
	}
	e.URL = strings.TrimRight(e.URL, "/")
	return e, nil
}

// Package guard decides which requests an HTTP server answers. It keeps foreign web pages in a
// user's browser from calling the server, whether by its address or by a name of their own that
// resolves to it (DNS rebinding).
package guard

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"
)

// Guard checks the requests of one server. Its methods may be called concurrently.
type Guard struct {
	name   string // host that the server listens on; empty for all addresses
	token  bool
	digest [sha256.Size]byte // of the token
}

// New returns a guard of a server that listens on listen, host:port. If token is not
// empty, requests need "Authorization: Bearer token".
func New(listen, token string) *Guard {
	name, _, _ := net.SplitHostPort(listen)
	return &Guard{name: name, token: token != "", digest: sha256.Sum256([]byte(token))}
}

// Refusal is the answer to a request that breaks a rule.
type Refusal struct {
	Status  int // HTTP status
	Message string
}

// Check returns nil if ctx's request keeps all rules:
//
//   - A request from a web page comes from one of this server's own pages. Links from other
//     pages are allowed.
//   - If the server has no token, Host is localhost, an IP address or the name that the
//     server listens on. Otherwise an attacker's page could make its own name resolve to the
//     server's address, and a browser would take the page for one of the server's own.
//   - If the server has a token, the request has it, or public is true.
//   - A POST with a body has a JSON content type. A browser sends other types to foreign
//     servers without asking them first (a CORS preflight).
func (g *Guard) Check(ctx *fasthttp.RequestCtx, public bool) *Refusal {
	// the two differ if the request line has an absolute URL
	hosts := []string{string(ctx.Request.Header.Host()), string(ctx.Host())}
	if no := checkPage(&ctx.Request.Header, hosts); no != nil {
		return no
	}
	if no := g.checkHost(hosts); no != nil {
		return no
	}
	if g.token && !public && !g.authorized(string(ctx.Request.Header.Peek(fasthttp.HeaderAuthorization))) {
		return &Refusal{fasthttp.StatusUnauthorized,
			"bearer token is missing or wrong, expected Authorization: Bearer TOKEN"}
	}
	return checkType(&ctx.Request.Header)
}

// checkPage refuses requests from other servers' pages. Browsers send Origin with all requests
// except some GET and HEAD requests, with which they send Sec-Fetch-Site.
func checkPage(h *fasthttp.RequestHeader, hosts []string) *Refusal {
	refused := func(page string) *Refusal {
		return &Refusal{fasthttp.StatusForbidden,
			fmt.Sprintf("request from a web page of %s, expected a page of this server", page)}
	}
	origins := h.PeekAll(fasthttp.HeaderOrigin)
	for _, origin := range origins {
		for _, host := range hosts {
			if len(origins) > 1 || host == "" || !strings.EqualFold(string(origin), "http://"+host) &&
				!strings.EqualFold(string(origin), "https://"+host) {
				return refused(fmt.Sprintf("%.100q", origin))
			}
		}
	}
	switch site := string(h.Peek("Sec-Fetch-Site")); {
	case site == "", site == "same-origin", site == "none":
	// A user has followed a link.
	case (h.IsGet() || h.IsHead()) && string(h.Peek("Sec-Fetch-Mode")) == "navigate" &&
		string(h.Peek("Sec-Fetch-Dest")) == "document":
	default:
		return refused("another server")
	}
	return nil
}

// checkHost refuses names that may be an attacker's, if the server has no token.
func (g *Guard) checkHost(hosts []string) *Refusal {
	if g.token {
		return nil
	}
	for _, host := range hosts {
		if !g.trusts(host) {
			return &Refusal{fasthttp.StatusForbidden,
				fmt.Sprintf("Host is %.100q, expected localhost, an IP address or the name listened on, because the "+
					"server has no token", host)}
		}
	}
	return nil
}

// trusts reports whether a Host header cannot be a name of an attacker. An empty one is from an
// HTTP/1.0 client, because browsers always send the header.
func (g *Guard) trusts(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost") || strings.EqualFold(host, g.name)
}

// authorized compares digests, so that the time it takes reveals nothing about the token.
func (g *Guard) authorized(header string) bool {
	scheme, given, _ := strings.Cut(header, " ")
	digest := sha256.Sum256([]byte(given))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(digest[:], g.digest[:]) == 1
}

// checkType refuses a POST with a body that is not declared as JSON.
func checkType(h *fasthttp.RequestHeader) *Refusal {
	if !h.IsPost() || h.ContentLength() == 0 {
		return nil
	}
	given := string(h.ContentType())
	media, _, _ := strings.Cut(given, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json") {
		return nil
	}
	return &Refusal{fasthttp.StatusUnsupportedMediaType,
		fmt.Sprintf(`Content-Type is %.100q, expected application/json (curl: -H "Content-Type: application/json")`,
			given)}
}

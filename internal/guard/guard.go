// Package guard decides which requests an HTTP server answers. It keeps web pages in a
// user's browser, and names that an attacker points at the server, from using it.
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
	name   string // that the server listens on; empty for all addresses
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
	Status  int
	Message string
}

// Check returns nil if ctx's request keeps all rules:
//
//   - If it is from a web page, the page is this server's own. A link from another page is
//     allowed.
//   - If the server has no token, Host is localhost, an IP address or the name that the
//     server listens on. An attacker's page can make its own name resolve to the server's
//     address, which makes it the server's own page in a browser's eyes.
//   - If the server has a token, the request has it, or is public.
//   - A POST with a body has the type of JSON. A browser sends other types to foreign servers
//     without asking them first (a CORS preflight).
func (g *Guard) Check(ctx *fasthttp.RequestCtx, public bool) *Refusal {
	// they differ if the request's target is a URL
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

// checkPage refuses requests of other servers' pages. Browsers send Origin with all
// requests except for some that read, and Sec-Fetch-Site with those.
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
	// a link
	case (h.IsGet() || h.IsHead()) && string(h.Peek("Sec-Fetch-Mode")) == "navigate" &&
		string(h.Peek("Sec-Fetch-Dest")) == "document":
	default:
		return refused("another server")
	}
	return nil
}

func (g *Guard) checkHost(hosts []string) *Refusal {
	if g.token {
		return nil
	}
	for _, host := range hosts {
		if !g.own(host) {
			return &Refusal{fasthttp.StatusForbidden,
				fmt.Sprintf("Host is %.100q, expected localhost, an IP address or the name listened on, because the "+
					"server has no token", host)}
		}
	}
	return nil
}

// own reports whether a Host header cannot be an attacker's name for this server. HTTP/1.0
// clients send none; browsers always do.
func (g *Guard) own(host string) bool {
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

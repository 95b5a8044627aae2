// Package secret hides the passwords and tokens of URLs in what easyrl prints and writes.
package secret

import (
	"regexp"
	"strings"
)

const (
	stars = "***"
	user  = `(://[^\s/?#@"':]*):[^\s/?#"]*@`
	query = `(?i)([?&][a-z_.-]*(?:token|key|secret|password|signature|sig)=)[^\s&#"']+`
)

// Hide replaces the passwords of URLs in text, and values in their queries that are named
// like a token, with stars.
func Hide(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	text = regexp.MustCompile(user).ReplaceAllString(text, "$1:"+stars+"@")
	return regexp.MustCompile(query).ReplaceAllString(text, "${1}"+stars)
}

// Hidden reports whether text is a URL that Hide has changed.
func Hidden(text string) bool {
	return strings.Contains(text, stars) && Hide(text) == text && Hide(strings.ReplaceAll(text, stars, "*")) == text
}

package report

import "regexp"

// HidePasswords is text with stars in place of the passwords of the URLs in it.
func HidePasswords(text string) string {
	return regexp.MustCompile(`(://[^\s/?#@"':]*):[^\s/?#"]*@`).ReplaceAllString(text, "$1:***@")
}

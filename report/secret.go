package report

import "regexp"

// HidePasswords replaces the passwords of URLs in text with stars.
func HidePasswords(text string) string {
	return regexp.MustCompile(`(://[^\s/?#@"':]*):[^\s/?#"]*@`).ReplaceAllString(text, "$1:***@")
}

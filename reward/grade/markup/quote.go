package markup

import (
	"encoding/json"
	"strings"
)

// Quoted decodes the JSON string at the start of s, as in {"answer": "5"}, and returns
// the length of its literal.
func Quoted(s string) (string, int, bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", 0, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			if rest := strings.TrimLeft(s[i+1:], " \n"); rest == "" || strings.IndexByte(",}]", rest[0]) < 0 {
				return "", 0, false
			}
			var inside string
			if json.Unmarshal([]byte(s[:i+1]), &inside) != nil {
				inside = s[1:i]
			}
			return inside, i + 1, strings.TrimSpace(inside) != ""
		}
	}
	return "", 0, false
}

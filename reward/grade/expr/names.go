package expr

import "strings"

// Names is a list of names with white space between them.
type Names string

// Has reports whether a name is in the list.
func (l Names) Has(name string) bool {
	for at := 0; name != ""; at++ {
		n := strings.Index(string(l[at:]), name)
		if n < 0 {
			break
		}
		at += n
		end := at + len(name)
		if (at == 0 || l[at-1] <= ' ') && (end == len(l) || l[end] <= ' ') {
			return true
		}
	}
	return false
}

package question

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/words"
)

// maxOption bounds the text on each side of an "or" that is read, in bytes.
const maxOption = 512

// alternatives returns the words next to an "or" of a text, and those before the commas
// of a list that ends in one.
func alternatives(lower string) map[string]bool {
	found := map[string]bool{}
	for at := 0; ; {
		i := strings.Index(lower[at:], " or ")
		if i < 0 {
			return found
		}
		at += i
		begin := at + len(" or ")
		next := strings.Fields(lower[begin:min(len(lower), begin+maxOption)])
		if len(next) > 0 {
			found[strings.Trim(next[0], ".,?!;:\"'")] = true
			if len(next) > 1 && words.OneOf(next[0], "the", "a", "an") {
				found[strings.Trim(next[1], ".,?!;:\"'")] = true
			}
		}
		before := lower[max(0, at-maxOption):at]
		for range 6 {
			before = strings.TrimRight(before, " ,\"'")
			cut := strings.LastIndexAny(before, " ,\"'(")
			found[before[cut+1:]] = true
			comma := strings.LastIndexByte(before, ',')
			if comma < 0 || strings.ContainsAny(before[comma:], ".?!") || len(strings.Fields(before[comma:])) > 4 {
				break
			}
			before = before[:comma]
		}
		at = begin
	}
}

// Offers reports whether the question offers a word as an alternative: next to "or", or
// before a comma of a list that ends in "or".
func (q *Question) Offers(word string) bool { return q.offered[word] }

// Option returns the text of a choice that the question offers, or "".
func (q *Question) Option(letter byte) string {
	for _, form := range []string{"(%c)", "%c)", "%c.", "%c:"} {
		mark := strings.Replace(form, "%c", string(letter), 1)
		_, rest, ok := strings.Cut(q.Text, mark)
		if !ok {
			continue
		}
		next := strings.Replace(form, "%c", string(letter+1), 1)
		rest, _, _ = strings.Cut(rest, next)
		rest, _, _ = strings.Cut(rest, "\n")
		return strings.Trim(rest, " ,;.\\$")
	}
	return ""
}

// Package spelling finds the known word closest to a misspelled one.
package spelling

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Near returns the known word that word is most likely a misspelling of: the first that starts
// with word, or else the first with the smallest edit distance. It returns false if they have
// too little in common: words are near if a third of their letters or less differ. Letter case,
// hyphens and underscores do not count.
func Near(word string, known []string) (string, bool) {
	const longest = 100 // longer words resemble nothing
	typed := plain(word)
	if typed == "" || len(typed) > longest {
		return "", false
	}
	begins := func(k string) bool { return strings.HasPrefix(plain(k), typed) }
	if at := slices.IndexFunc(known, begins); at >= 0 && len(typed) > 1 {
		return known[at], true
	}
	best, least := "", -1
	for _, k := range known {
		meant := plain(k)
		size := max(utf8.RuneCountInString(typed), utf8.RuneCountInString(meant))
		if d := slips(typed, meant); d <= size/3 && (least < 0 || d < least) {
			best, least = k, d
		}
	}
	return best, least >= 0
}

// plain returns word without differences that are not misspellings.
func plain(word string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word))
}

// slips returns the optimal string alignment distance of a and b: the number of
// letters inserted, deleted, substituted or swapped with a neighbor.
func slips(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			wrong := 1
			if x[i] == y[j] {
				wrong = 0
			}
			row[j+1] = min(last[j]+wrong, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// Package spelling finds the known word closest to a misspelled one.
package spelling

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Near returns the known word that word is most likely meant to be: the first that starts with word, or
// else the first with the smallest edit distance. It returns false if more than a third of the letters
// differ in every known word. Letter case, hyphens and underscores do not count.
func Near(word string, known []string) (string, bool) {
	const longest = 100 // longer words have no near word, to bound the time
	typed := fold(word)
	if typed == "" || len(typed) > longest {
		return "", false
	}
	begins := func(k string) bool { return strings.HasPrefix(fold(k), typed) }
	if at := slices.IndexFunc(known, begins); at >= 0 && len(typed) > 1 {
		return known[at], true
	}
	best := ""
	bestDistance := -1
	for _, k := range known {
		candidate := fold(k)
		size := max(utf8.RuneCountInString(typed), utf8.RuneCountInString(candidate))
		if d := distance(typed, candidate); d <= size/3 && (bestDistance < 0 || d < bestDistance) {
			best = k
			bestDistance = d
		}
	}
	return best, bestDistance >= 0
}

// fold returns word in lower case without hyphens and underscores.
func fold(word string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word))
}

// distance returns the optimal string alignment distance of a and b: the smallest number of
// letters inserted, deleted, substituted or swapped with a neighbor.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	// Rows of the table of distances between prefixes of x and y: the one to fill and the two before it.
	row := make([]int, len(y)+1)
	last := make([]int, len(y)+1)
	beforeLast := make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			substitution := 1
			if x[i] == y[j] {
				substitution = 0
			}
			row[j+1] = min(last[j]+substitution, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], beforeLast[j-1]+1)
			}
		}
		beforeLast, last, row = last, row, beforeLast
	}
	return last[len(y)]
}

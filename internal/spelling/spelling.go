// Package spelling finds the known word closest to a misspelled one.
package spelling

import (
	"slices"
	"strings"
)

// Nearest returns the first word of known that starts with word or, if there is
// none, the first with the smallest edit distance. known must not be empty.
func Nearest(word string, known []string) string {
	begins := func(k string) bool { return word != "" && strings.HasPrefix(k, word) }
	if at := slices.IndexFunc(known, begins); at >= 0 {
		return known[at]
	}
	best, least := "", -1
	word = word[:min(len(word), 100)] // longer words resemble nothing
	for _, k := range known {
		if d := slips(strings.ToLower(word), strings.ToLower(k)); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
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

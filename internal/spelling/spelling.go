// Package spelling finds the known word that a misspelt one most likely means.
package spelling

import (
	"slices"
	"strings"
)

// Nearest returns the first of known that begins with word or, if none does, the
// first with the fewest typing slips. known must not be empty.
func Nearest(word string, known []string) string {
	begins := func(k string) bool { return word != "" && strings.HasPrefix(k, word) }
	if at := slices.IndexFunc(known, begins); at >= 0 {
		return known[at]
	}
	best, least := "", -1
	word = word[:min(len(word), 100)] // what is longer resembles nothing
	for _, k := range known {
		if d := slips(strings.ToLower(word), strings.ToLower(k)); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// slips counts the letters left out, put in, mistaken or swapped with their
// neighbour between a and b (optimal string alignment).
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

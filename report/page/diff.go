package page

import (
	"regexp"
	"slices"
)

// edit is a piece of text that two texts share, or that only the first (Gone) or only the second
// (Come) has.
type edit struct {
	Text       string
	Gone, Come bool
}

// diff returns the edits that turn a into b, word by word, and keeps as many words as possible. Its time
// and memory grow with the product of the lengths, so callers shorten long texts.
func diff(a, b string) []edit {
	old, now := words(a), words(b)
	// common[i][j] is the length of the longest common subsequence of old[i:] and now[j:].
	common := make([][]int16, len(old)+1)
	for i := range common {
		common[i] = make([]int16, len(now)+1)
	}
	for i := range slices.Backward(old) {
		for j := range slices.Backward(now) {
			if old[i] == now[j] {
				common[i][j] = common[i+1][j+1] + 1
				continue
			}
			common[i][j] = max(common[i+1][j], common[i][j+1])
		}
	}
	var out []edit
	add := func(word string, gone, come bool) {
		if last := len(out) - 1; last >= 0 && out[last].Gone == gone && out[last].Come == come {
			out[last].Text += word
			return
		}
		out = append(out, edit{word, gone, come})
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			add(old[i], false, false)
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && common[i+1][j] >= common[i][j+1]:
			add(old[i], true, false)
			i++
		default:
			add(now[j], false, true)
			j++
		}
	}
	return out
}

// words splits a text into words and numbers, runs of space, and other single characters.
func words(s string) []string {
	return regexp.MustCompile(`[\pL\p{Nd}]+|[\s\v\x{85}\pZ]+|(?s:.)`).FindAllString(s, -1)
}

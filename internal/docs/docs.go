// Package docs reads pages of documentation, so that tests can hold them to the
// code.
package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	Line     int    // that it begins at, from 1
	Language string // empty where none is named
	File     string // the `name` that the words before it tell to "save it as", or empty
	Text     string
}

const fence = "```"

// Blocks are those of a page, in order. A block without an end is an error.
func Blocks(page string) ([]Block, error) {
	saved := regexp.MustCompile("(?i)\\bsave it as\\s+`([^`]+)`")
	var all []Block
	open, words := false, ""
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, fence) && !open:
			b := Block{Line: i + 1, Language: strings.TrimPrefix(line, fence)}
			if m := saved.FindStringSubmatch(words); m != nil {
				b.File = m[1]
			}
			open, all, words = true, append(all, b), ""
		case strings.HasPrefix(line, fence):
			open = false
		case open:
			all[len(all)-1].Text += line + "\n"
		default:
			words += line + "\n"
		}
	}
	if open {
		return nil, fmt.Errorf("the block at line %d has no end, expected %s", all[len(all)-1].Line, fence)
	}
	return all, nil
}

// Prose is a page without its blocks; their lines are empty.
func Prose(page string) string {
	var out strings.Builder
	open := false
	for line := range strings.Lines(page) {
		fenced := strings.HasPrefix(line, fence)
		if open || fenced {
			line = "\n"
		}
		open = open != fenced
		out.WriteString(line)
	}
	return out.String()
}

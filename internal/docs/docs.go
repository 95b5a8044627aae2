// Package docs parses documentation pages, so that tests can check them against
// the code.
package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a fenced code block of a page.
type Block struct {
	Line     int    // first line, from 1
	Language string // empty if none is given
	File     string // the `name` after "save it as" in the preceding text, or empty
	Text     string
}

const fence = "```"

// Blocks returns the code blocks of a page in order. It fails if a block is not
// closed.
func Blocks(page string) ([]Block, error) {
	saved := regexp.MustCompile("(?i)\\bsave it as\\s+`([^`]+)`")
	var all []Block
	open, prose := false, ""
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, fence) && !open:
			b := Block{Line: i + 1, Language: strings.TrimPrefix(line, fence)}
			if m := saved.FindStringSubmatch(prose); m != nil {
				b.File = m[1]
			}
			open, all, prose = true, append(all, b), ""
		case strings.HasPrefix(line, fence):
			open = false
		case open:
			all[len(all)-1].Text += line + "\n"
		default:
			prose += line + "\n"
		}
	}
	if open {
		return nil, fmt.Errorf("the block at line %d has no end, expected %s", all[len(all)-1].Line, fence)
	}
	return all, nil
}

// Prose returns a page with the lines of its code blocks blanked.
func Prose(page string) string {
	var out strings.Builder
	open := false
	for line := range strings.Lines(page) {
		fenced := strings.HasPrefix(line, fence)
		if open || fenced {
			line = "\n"
		}
		open = open != fenced // a fence opens or closes a block
		out.WriteString(line)
	}
	return out.String()
}

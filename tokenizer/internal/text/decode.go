package text

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
)

// Decoding changes the pieces of ids. It may overwrite pieces.
type Decoding func(b *budget.Budget, pieces []string) []string

// Decoder is a list of decodings, applied in order.
type Decoder []Decoding

// Text returns the joined result of all decodings. It may overwrite pieces. If the budget is
// spent, some changes are missing.
func (d Decoder) Text(b *budget.Budget, pieces []string) string {
	for _, step := range d {
		pieces = step(b, pieces)
	}
	return strings.Join(pieces, "")
}

// ByteOf returns the byte of a piece such as <0x0A>.
func ByteOf(piece string) (byte, bool) {
	if len(piece) != 6 || piece[:3] != "<0x" || piece[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(piece[3:5], 16, 8)
	return byte(b), err == nil
}

// BytePieces replaces consecutive pieces of bytes by the text that they encode or,
// if they are not valid UTF-8, by a U+FFFD for each byte.
func BytePieces(_ *budget.Budget, pieces []string) []string {
	out := pieces[:0] // never longer than the pieces read
	var run []byte    // consecutive bytes
	flush := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, "\ufffd")
			}
		}
		run = run[:0]
	}
	for _, p := range pieces {
		if b, ok := ByteOf(p); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, p)
	}
	flush()
	return out
}

// Fuse joins all pieces into one.
func Fuse(_ *budget.Budget, pieces []string) []string { return []string{strings.Join(pieces, "")} }

// Each returns a decoding that applies a step to each piece.
func Each(step Step) Decoding {
	return func(b *budget.Budget, pieces []string) []string {
		size := 0
		for i, p := range pieces {
			pieces[i] = step(b, p)
			if size += len(pieces[i]); !b.Holds(size) {
				break
			}
		}
		return pieces
	}
}

// StripChar returns a decoding that removes up to start occurrences of content from the
// beginning of each piece and up to stop occurrences from its end.
func StripChar(content string, start, stop int) Decoding {
	return Each(func(_ *budget.Budget, p string) string {
		for i := 0; i < start && strings.HasPrefix(p, content); i++ {
			p = p[len(content):]
		}
		for i := 0; i < stop && strings.HasSuffix(p, content); i++ {
			p = p[:len(p)-len(content)]
		}
		return p
	})
}

// Metaspace returns a decoding that replaces marks by spaces. If the encoder prefixes text
// with a mark, the decoding removes the marks of the first piece instead.
func Metaspace(mark string, prefixed bool) Decoding {
	return func(_ *budget.Budget, pieces []string) []string {
		for i, p := range pieces {
			space := " "
			if i == 0 && prefixed {
				space = ""
			}
			pieces[i] = strings.ReplaceAll(p, mark, space)
		}
		return pieces
	}
}

// Spaced joins pieces with spaces.
func Spaced(_ *budget.Budget, pieces []string) []string { return []string{strings.Join(pieces, " ")} }

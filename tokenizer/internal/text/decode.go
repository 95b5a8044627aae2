package text

import (
	"strconv"
	"strings"
)

// Decoding changes the pieces that ids stand for, in place where it can.
type Decoding func(pieces []string) []string

// Decoder is a list of decodings; what they leave is joined.
type Decoder []Decoding

// Text is the text of pieces, which it may change.
func (d Decoder) Text(pieces []string) string {
	for _, step := range d {
		pieces = step(pieces)
	}
	return strings.Join(pieces, "")
}

// ByteOf is the byte that a piece such as <0x0A> stands for.
func ByteOf(piece string) (byte, bool) {
	if len(piece) != 6 || piece[:3] != "<0x" || piece[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(piece[3:5], 16, 8)
	return byte(b), err == nil
}

// BytePieces turns the pieces of bytes into these bytes, those in a row into one
// piece. They need not be valid UTF-8.
func BytePieces(pieces []string) []string {
	out := pieces[:0]
	var row []byte
	for _, p := range pieces {
		if b, ok := ByteOf(p); ok {
			row = append(row, b)
			continue
		}
		if len(row) > 0 {
			out = append(out, string(row))
			row = row[:0]
		}
		out = append(out, p)
	}
	if len(row) > 0 {
		out = append(out, string(row))
	}
	return out
}

// Fuse makes one piece of all.
func Fuse(pieces []string) []string { return []string{strings.Join(pieces, "")} }

// Each applies a step to each piece.
func Each(step Step) Decoding {
	return func(pieces []string) []string {
		for i, p := range pieces {
			pieces[i] = step(p)
		}
		return pieces
	}
}

// StripChar takes up to start times content off the beginning of each piece and
// up to stop times off its end.
func StripChar(content string, start, stop int) Decoding {
	return Each(func(p string) string {
		for i := 0; i < start && strings.HasPrefix(p, content); i++ {
			p = p[len(content):]
		}
		for i := 0; i < stop && strings.HasSuffix(p, content); i++ {
			p = p[:len(p)-len(content)]
		}
		return p
	})
}

// Metaspace makes spaces of the marks, but none of those in the first piece where
// a mark is put before text.
func Metaspace(mark string, prefixed bool) Decoding {
	return func(pieces []string) []string {
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

// Spaced puts a space between pieces.
func Spaced(pieces []string) []string { return []string{strings.Join(pieces, " ")} }

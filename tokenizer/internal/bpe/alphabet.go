package bpe

import "unicode/utf8"

// Alphabet is the alphabet of byte-level vocabularies: every byte is one
// printable character. Bytes that are printable in Latin-1 represent themselves;
// the others, in ascending order, are the characters from U+0100.
type Alphabet struct {
	bytes [0x144]int16 // byte by character; -1 for a character outside the alphabet
	chars [256]rune    // character by byte
}

// NewAlphabet returns the alphabet.
func NewAlphabet() *Alphabet {
	a := new(Alphabet)
	for i := range a.bytes {
		a.bytes[i] = -1
	}
	next := rune(0x100)
	for b := range rune(256) {
		c := b
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			c = next
			next++
		}
		a.chars[b], a.bytes[c] = c, int16(b)
	}
	return a
}

// Decode returns the bytes of a piece, or false if it has a character outside the
// alphabet.
func (a *Alphabet) Decode(piece string) (string, bool) {
	buf := make([]byte, 0, 32)
	for _, c := range piece {
		if int(c) >= len(a.bytes) || a.bytes[c] < 0 {
			return "", false
		}
		buf = append(buf, byte(a.bytes[c]))
	}
	return string(buf), true
}

// Spell returns the one-character piece of a byte.
func (a *Alphabet) Spell(b byte) string {
	return string(utf8.AppendRune(nil, a.chars[b]))
}

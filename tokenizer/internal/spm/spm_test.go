package spm

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// message writes fields: numbers as varints, floats as 32 bits, text as bytes.
func message(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		number := uint64(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			b = binary.AppendUvarint(binary.AppendUvarint(b, number<<3), uint64(v))
		case float32:
			b = binary.LittleEndian.AppendUint32(binary.AppendUvarint(b, number<<3|5), math.Float32bits(v))
		case string:
			b = append(binary.AppendUvarint(binary.AppendUvarint(b, number<<3|2), uint64(len(v))), v...)
		case []byte:
			b = append(binary.AppendUvarint(binary.AppendUvarint(b, number<<3|2), uint64(len(v))), v...)
		}
	}
	return b
}

func TestParse(t *testing.T) {
	t.Parallel()
	bpe := message(3, 2, 35, 1, 41, 3, 42, -1)
	m, err := Parse(message(
		1, message(1, "<unk>", 3, 2), 1, message(1, "a"), 1, message(1, "bb", 2, float32(-1)), 1,
		message(1, "b", 2, float32(-9)),
		1, message(1, "bba", 2, float32(-2)), 1, message(1, "é", 3, 4), 1, message(1, "éa", 2, float32(-1)), 1,
		message(1, "<0x61>", 3, 6),
		2, bpe, 3, message(1, "identity", 3, 0, 4, 0), 99, "later"))
	require.NoError(t, err)
	require.Equal(t, int32(3), m.BOS)
	require.Equal(t, int32(-1), m.EOS)
	require.True(t, m.ByteFallback)
	require.False(t, m.Prefix || m.Squeeze)
	require.Equal(t, Piece{"bb", -1, Normal}, m.Pieces[2])
	require.Equal(t, []Merge{{"b", "b", 1}, {"bb", "a", 2}, {"é", "a", 1}}, m.Merges())

	one := message(1, "a")
	for want, b := range map[string][]byte{
		"no pieces":                             nil,
		"truncated or malformed":                message(1, one, 2, bpe)[:4],
		"piece 0 is empty":                      message(1, message(2, float32(1))),
		"model type 1 UNIGRAM":                  message(1, one, 2, message(41, 1)),
		"model type 4 CHAR":                     message(1, one, 2, message(3, 4)),
		"treat_whitespace_as_suffix":            message(1, one, 2, message(3, 2, 24, 1)),
		"normalisation rules":                   message(1, one, 3, message(2, "rules")),
		"escape_whitespaces false is not":       message(1, one, 3, message(5, 0)),
		"not a SentencePiece model: truncated ": {0x0b, 1},
	} {
		_, err := Parse(b)
		require.ErrorContains(t, err, want)
	}
}

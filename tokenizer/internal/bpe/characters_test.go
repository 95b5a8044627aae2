package bpe

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Bytes come before the unknown id of the character that precedes them, as in
// BPE::merge_word of Hugging Face tokenizers.
func TestBytesOvertakeUnknown(t *testing.T) {
	t.Parallel()
	vocab := map[string]int32{"<unk>": 0, "a": 1, "<0xC3>": 2, "<0xA9>": 3}
	for fuse, want := range map[bool][]int32{
		false: {1, 2, 3, 0, 0, 1},
		true:  {1, 2, 3, 0, 1},
	} {
		m, err := New(Config{Vocab: vocab, Unk: "<unk>", Fuse: fuse, Fallback: true, Chars: true})
		require.NoError(t, err)
		// x and y are unknown; the vocabulary has the bytes of é.
		require.Equal(t, want, m.characters(nil, "axéya"), "fuse_unk %v", fuse)
	}
}

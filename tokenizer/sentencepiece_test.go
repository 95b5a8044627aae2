package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/limittest"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
)

// The ids and texts in testdata/sentencepiece.json are Hugging Face tokenizers'
// (version 0.23.3), written by testdata/python/spm_golden.py.
func TestGoldenSentencePiece(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/sentencepiece.json")
	require.NoError(t, err)
	var golden struct {
		Base  object
		Cases []struct {
			Name   string
			Change object
			Rows   []struct {
				Text        string
				IDs, Prompt []int32
				Decoded     *string
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden.Cases, 28)
	for _, c := range golden.Cases {
		file := maps.Clone(golden.Base)
		maps.Copy(file, c.Change)
		tok, err := Load(write(t, object{"tokenizer.json": file}))
		require.NoError(t, err, c.Name)
		for _, r := range c.Rows {
			require.Equal(t, r.IDs, append([]int32{}, tok.mustEncode(r.Text)...), "%s %+q", c.Name, r.Text)
			if r.Prompt == nil {
				r.Prompt = r.IDs
			}
			require.Equal(t, r.Prompt, append([]int32{}, tok.mustEncodePrompt(r.Text)...), "%s %+q", c.Name, r.Text)
			if r.Decoded != nil {
				require.Equal(t, *r.Decoded, tok.Decode(r.IDs), "%s %+q", c.Name, r.Text)
			}
		}
	}
}

// The ids and texts in testdata/models.json are sentencepiece's (version 0.2.3),
// written by testdata/python/spm_golden.py.
func TestGoldenModels(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/models.json")
	require.NoError(t, err)
	var golden []struct {
		Name  string
		Model []byte
		Rows  []struct {
			Text    string
			IDs     []int32
			Decoded string
		}
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden, 6)
	for _, m := range golden {
		tok, err := Load(write(t, object{"tokenizer.model": string(m.Model)}))
		require.NoError(t, err, m.Name)
		require.Equal(t, []int32{2}, tok.StopIDs())
		for _, r := range m.Rows {
			require.Equal(t, r.IDs, append([]int32{}, tok.mustEncode(r.Text)...), "%s %+q", m.Name, r.Text)
			require.Equal(t, append([]int32{1}, r.IDs...), tok.mustEncodePrompt(r.Text), "%s %+q", m.Name, r.Text)
			if !strings.Contains(r.Decoded, "\ufffd") && !strings.Contains(r.Decoded, "⁇") {
				require.Equal(t, r.Decoded, tok.Decode(r.IDs), "%s %+q", m.Name, r.Text)
			}
		}
	}
}

// goldenModel returns the tokenizer of testdata's first tokenizer.model, or of
// its base tokenizer.json.
func goldenModel(t testing.TB, proto bool) *Tokenizer {
	t.Helper()
	files := object{}
	if proto {
		data, err := os.ReadFile("testdata/models.json")
		require.NoError(t, err)
		var golden []struct{ Model []byte }
		require.NoError(t, json.Unmarshal(data, &golden))
		files["tokenizer.model"] = string(golden[0].Model)
	} else {
		data, err := os.ReadFile("testdata/sentencepiece.json")
		require.NoError(t, err)
		var golden struct{ Base object }
		require.NoError(t, json.Unmarshal(data, &golden))
		files["tokenizer.json"] = golden.Base
	}
	tok, err := Load(write(t, files))
	require.NoError(t, err)
	return tok
}

// decodedOf returns what ids of text decode to. Broken UTF-8 gives a U+FFFD for
// each byte.
func decodedOf(text string) string {
	if utf8.ValidString(text) {
		return strings.ReplaceAll(text, bpe.SpaceMark, " ")
	}
	return strings.Repeat("\ufffd", len(text))
}

// Text of any length is encoded in linear time and decodes to itself.
func TestLongSentencePieceText(t *testing.T) {
	t.Parallel()
	for _, proto := range []bool{false, true} {
		tok := goldenModel(t, proto)
		for _, atom := range []string{"a", "ab", "the ", " ", "日", "☃", "\xff", "▁", "e▁c", "<", "q q"} {
			size := 1 << 16
			if atom == "ab" {
				size = 1 << 20
			}
			text := strings.Repeat(atom, size/len(atom))
			require.True(t, tok.Decode(tok.mustEncode(text)) == decodedOf(text), "%q", atom)
		}
	}
}

func FuzzSentencePiece(f *testing.F) {
	for i, s := range []string{"", " the  cat\n", "\xff\xfe☃", "▁▁a<0x0A>", "日本語 123"} {
		f.Add(s, uint16(1<<(2*i)))
	}
	toks := []*Tokenizer{goldenModel(f, false), goldenModel(f, true)}
	f.Fuzz(func(t *testing.T, text string, times uint16) {
		text = repeated(text, times)
		for _, special := range []string{"<s>", "</s>", "<unk>", "<pad>"} {
			if strings.Contains(text, special) {
				return
			}
		}
		want := strings.ReplaceAll(text, bpe.SpaceMark, " ")
		for _, tok := range toks {
			var ids []int32
			limittest.Run(t, func() { ids = tok.mustEncode(text) })
			for range 2 {
				require.Equal(t, ids, tok.mustEncode(text), "the cache must not change the result")
			}
			if utf8.ValidString(text) { // else a run of bytes decodes as a whole or not at all
				require.Equal(t, want, tok.Decode(ids))
			}
			require.True(t, utf8.ValidString(tok.Decode(ids)))
			require.LessOrEqual(t, len(ids), len(text)+1)
		}
	})
}

func FuzzTokenizerModel(f *testing.F) {
	data, err := os.ReadFile("testdata/models.json")
	require.NoError(f, err)
	var golden []struct{ Model []byte }
	require.NoError(f, json.Unmarshal(data, &golden))
	for _, m := range golden {
		f.Add(m.Model)
	}
	f.Fuzz(func(t *testing.T, proto []byte) {
		c := new(configFile)
		if tok, err := fromModel(proto, c); err == nil && tok.finish(c) == nil {
			checkAny(t, tok)
		}
	})
}

func BenchmarkSentencePiece(b *testing.B) {
	data, err := os.ReadFile(filepath.Join(testData(b), "prompts", "gsm8k", "train.jsonl"))
	require.NoError(b, err)
	tok := goldenModel(b, false)
	for kind, text := range map[string]string{"text": string(data[:1<<20]),
		"word": strings.Repeat("abcdefghijklm", 1<<20/13)} {
		b.Run(kind, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.mustEncode(text)
			}
		})
	}
}

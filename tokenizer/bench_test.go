package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConcurrent(t *testing.T) {
	t.Parallel()
	tok := loaded(t, nil)
	text := strings.Repeat("abc ab aab 12\n", 50)
	want := tok.mustEncode(text)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				require.Equal(t, want, tok.mustEncode(text))
				require.Equal(t, text, tok.Decode(want))
			}
		})
	}
	wg.Wait()
}

func BenchmarkLoad(b *testing.B) {
	dir := realFolders(b, "qwen2")[2]
	for b.Loop() {
		_, err := Load(dir)
		require.NoError(b, err)
	}
}

func BenchmarkEncode(b *testing.B) {
	dirs := map[string]string{"gpt2": realFolders(b, "gpt-2")[0], "qwen3": realFolders(b, "qwen2")[2]}
	data, err := os.ReadFile(filepath.Join(testData(b), "prompts", "gsm8k", "train.jsonl"))
	require.NoError(b, err)
	texts := map[string]string{"text": string(data[:1<<20]), "word": strings.Repeat("abcdefghijklm", 1<<20/13)}
	for name, dir := range dirs {
		tok, err := Load(dir)
		require.NoError(b, err)
		for kind, text := range texts {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					tok.mustEncode(text)
				}
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	tok, err := Load(realFolders(b, "qwen2")[2])
	require.NoError(b, err)
	ids := tok.mustEncode(strings.Repeat("Natalia sold 48 clips to her friends.\n", 1000))
	b.SetBytes(38000)
	for b.Loop() {
		tok.Decode(ids)
	}
}

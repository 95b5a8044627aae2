package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/tokenizer"
)

// reading returns a reader for a model with the characters a to z, its warnings, and a
// file of its data.
func reading(t *testing.T, rows ...string) (r *Reader, warnings *[]string, file string) {
	t.Helper()
	dir := t.TempDir()
	var ords []string
	for c := 'a'; c <= 'z'; c++ {
		ords = append(ords, fmt.Sprint(int(c)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"),
		[]byte(`{"char_ords":[`+strings.Join(ords, ",")+`]}`), 0o600))
	tok, err := tokenizer.Load(dir)
	require.NoError(t, err)
	file = filepath.Join(dir, "data.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(rows, "\n")), 0o600))
	cfg := configs.Default()
	cfg.Reward.Kind = "exact"
	cfg.Data.MaxPromptTokens = 16
	warnings = new([]string)
	f := &folder.Folder{Dir: dir, Tokenizer: tok, Shape: &model.Config{MaxPositions: 64}}
	return New(f, &cfg, 0, func(format string, args ...any) {
		*warnings = append(*warnings, fmt.Sprintf(format, args...))
	}), warnings, file
}

func prompt(text string) string { return fmt.Sprintf(`{"prompt":%q,"answer":"b"}`, text) }

// A prompt of megabytes is dropped like any other that is too long, and is not encoded.
func TestHugePrompts(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("a", 20<<20)
	r, warnings, file := reading(t, prompt("abc"), prompt(huge), prompt(strings.Repeat("a", 20)))
	lists, dropped, err := r.Prompts(t.Context(), []string{file})
	require.NoError(t, err)
	require.Len(t, lists[0], 1)
	require.Equal(t, []int{2}, dropped)
	require.Contains(t, (*warnings)[0], "dropped 2 of 3 prompts longer than 16 tokens")

	r, _, file = reading(t, prompt(huge))
	_, _, err = r.Prompts(t.Context(), []string{file})
	require.ErrorContains(t, err, "all 1 prompts are longer than 16 tokens")

	r, warnings, file = reading(t, `{"prompt":"a","response":"b"}`, fmt.Sprintf(`{"prompt":"a","response":%q}`, huge))
	demos, err := r.Demonstrations(t.Context(), []string{file})
	require.NoError(t, err)
	require.Len(t, demos[0], 1)
	require.Contains(t, (*warnings)[0], "dropped 1 of 2 demonstrations that are too long")
}

// A cancelled context ends the reading.
func TestReadingIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _, file := reading(t, prompt("abc"), `{"prompt":"a","response":"b"}`)
	_, _, err := r.Prompts(ctx, []string{file})
	require.ErrorIs(t, err, context.Canceled)
	r, _, file = reading(t, `{"prompt":"a","response":"b"}`)
	_, err = r.Demonstrations(ctx, []string{file})
	require.ErrorIs(t, err, context.Canceled)
}

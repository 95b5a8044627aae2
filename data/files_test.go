package data

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	of := func(files ...string) string {
		var paths []string
		for i, text := range files {
			paths = append(paths, write(t, string(rune('a'+i))+".jsonl", text))
		}
		d, err := Digest(paths)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, of("one", "two"), of("one", "two"), "in another folder")
	require.NotEqual(t, of("one", "two"), of("two", "one"))
	require.NotEqual(t, of("one", "two"), of("onet", "wo"))
	_, err := Digest([]string{"no/such"})
	require.ErrorContains(t, err, "read prompts no/such: ")
}

func TestSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/train.jsonl": `{"prompt":"1"}` + "\n" + `{"id":"x","prompt":"2"}`,
		"b/train.jsonl": `{"prompt":"3"}` + "\n" + `{"id":"x","prompt":"4"}`,
		"b/part-2.json": `[{"prompt":"6"}]`, "b/part-1.json": `[{"prompt":"5"}]`, "b/odd[1].jsonl": `{"prompt":"7"}`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	got, err := ReadAll([]string{in("a/train.jsonl"), in("b/part-*.json"), in("b/train.jsonl"), in("b/odd[1].jsonl")},
		Options{})
	require.NoError(t, err)
	var all []string
	for part, prompts := range got {
		for _, p := range prompts {
			all = append(all, fmt.Sprint(part, p.ID, " ", p.Text))
		}
	}
	require.Equal(t, []string{"0a/train.jsonl:1 1", "0x 2", "1part-1.json:1 5", "1part-2.json:1 6",
		"2b/train.jsonl:1 3", "2b/train.jsonl:x 4", "3odd[1].jsonl:1 7"}, all)
	one, err := read(in("b/part-?.json"), Options{})
	require.NoError(t, err)
	require.Equal(t, got[1], one)

	for want, paths := range map[string][]string{
		"no files":                nil,
		"none-*: no file matches": {in("none-*")},
		"syntax error in pattern": {in("none-[")},
		"named twice":             {in("a/*.jsonl"), in("a/../a/train.jsonl")},
		"no such file":            {in("a/train.jsonl"), in("gone.jsonl")},
	} {
		_, err := ReadAll(paths, Options{})
		require.ErrorContains(t, err, want)
		_, err = ReadExamples(paths, ExampleOptions{PromptKey: "prompt", ResponseKey: "prompt"})
		require.ErrorContains(t, err, want)
	}
}

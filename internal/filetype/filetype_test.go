package filetype

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

const lines = `{"prompt":"1+1=","answer":"2"}` + "\n" + `{"prompt":"1+2=","answer":"3"}` + "\n"

// written returns what a writer made of lines.
func written(t *testing.T, open func(io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	var out bytes.Buffer
	w, err := open(&out)
	require.NoError(t, err)
	_, err = io.WriteString(w, lines)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

func archives(t *testing.T) (zipped, tarred string) {
	t.Helper()
	var z, r bytes.Buffer
	zw := zip.NewWriter(&z)
	f, err := zw.Create("train.jsonl")
	require.NoError(t, err)
	_, err = io.WriteString(f, lines)
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	tw := tar.NewWriter(&r)
	require.NoError(t, tw.WriteHeader(&tar.Header{Name: "train.jsonl", Mode: 0o600, Size: int64(len(lines))}))
	_, err = io.WriteString(tw, lines)
	require.NoError(t, err)
	require.NoError(t, tw.Close())
	return z.String(), r.String()
}

func wideText(mark, little bool) string {
	var out []byte
	units := utf16.Encode([]rune(lines))
	if mark {
		units = append([]uint16{0xfeff}, units...)
	}
	for _, u := range units {
		if little {
			out = append(out, byte(u), byte(u>>8))
		} else {
			out = append(out, byte(u>>8), byte(u))
		}
	}
	return string(out)
}

func unhex(t *testing.T, digits string) string {
	t.Helper()
	b, err := hex.DecodeString(digits)
	require.NoError(t, err)
	return string(b)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	zipped, tarred := archives(t)
	for _, test := range []struct{ text, want string }{
		{written(t, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }),
			"a file compressed with gzip"},
		{written(t, func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }),
			"a file compressed with zstd"},
		{unhex(t, "fd377a585a000004e6d6b446"), "a file compressed with xz"}, // printf x | xz | xxd
		{unhex(t, "425a683931415926535977c1c8"), "a file compressed with bzip2"},
		{zipped, "a zip archive"},
		{tarred, "a tar archive"},
		{"PAR1\x15\x04\x15", "Parquet"},
		{"ARROW1\x00\x00", "an Arrow file"},
		{"\xff\xff\xff\xff\x10\x01\x00\x00", "an Arrow stream"},
		{"\x40\x00\x00\x00\x00\x00\x00\x00{\"w\":{", "a safetensors file"},
		{"\x80\x04\x95\x10\x00", "a Python pickle"},
		{"GGUF\x03\x00", "a GGUF model"},
		{wideText(true, true), "text in UTF-16"},
		{wideText(true, false), "text in UTF-16"},
		{wideText(false, true), "text in UTF-16LE"},
		{wideText(false, false), "text in UTF-16BE"},
		{"abc\x00\x00\x00\x01\x02 def ghi", "binary data"},
		{"prompt,answer\n1+1=,2\n", "CSV"},
		{"\ufeffprompt,answer\n1+1=,2\n", "CSV"},
		{"\"prompt\",\"answer\"\r\n\"1+1=\",\"2\"\r\n", "CSV"},
		{"question;answer\n1+1;2\n", "CSV"},
		{"What is 1+1?,2\nWhat is 1+2?,3\n", "CSV"},
		{"prompt\tanswer\n1+1=\t2\n", "TSV"},
		{"prompt,answer", "CSV"},
		{"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "a web page"},
		{"  <html lang=en>", "a web page"},
		{"<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code></Error>", "XML"},
		{"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "a Git LFS pointer"},
		{"[\n  {\"prompt\": \"1\"}\n]", "a JSON array"},
		{`[{"prompt":"1"}]`, "a JSON array"},
		{"{\n  \"prompt\": \"1\"\n}", "a JSON object over several lines"},
		{"{\"prompt\": \"1\",\n \"answer\": 2}", "a JSON object over several lines"},
		{"{'prompt': '1+1=', 'answer': 2}", "Python values"},
		{"- prompt: 1+1=\n  answer: 2\n", "YAML"},
		{"---\nprompt: 1\n", "YAML"},
		{"prompt: 1+1=\nanswer: 2\n", "YAML"},
		{"prompt: say a, b\nanswer: a, b\n", "YAML"},
		{"[run]\nsteps = 3\n", "TOML"},
		{"steps = 3\n", "TOML"},
		{"Hello there, how are you?", "plain text"},
		{"Access denied", "plain text"},
		{"Question: What is 1+1?\n\nAnswer: 2\n", "YAML"},
	} {
		err := Explain([]byte(test.text), "JSON lines")
		require.Error(t, err, "%.60q", test.text)
		got, _, _ := strings.Cut(err.Error(), ";")
		require.Equal(t, "found "+test.want+", expected JSON lines", got, "%.60q", test.text)
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
		require.EqualError(t, ExplainFile(path, "JSON lines"), err.Error())
	}
	for _, text := range []string{"", " \n", lines, `{"prompt":`, `{"prompt":"a","answer":2,}`, `{"a":1} {"b":2}`,
		`"a string"`, "3", "-1.5", "true", "null", "[1,2]", `{"prompt":"<html>"}`,
		`{"a":{"b":[1,2]},"c":tru}`, "\xc3\x28", `[[1]]`} {
		require.NoError(t, Explain([]byte(text), "JSON lines"), text)
	}
	require.NoError(t, ExplainFile(filepath.Join(t.TempDir(), "none"), "JSON lines"))
	require.EqualError(t, Explain([]byte("\x1f\x8b\x08"), "JSON lines"),
		"found a file compressed with gzip, expected JSON lines; decompress it with gunzip")
}

func FuzzExplain(f *testing.F) {
	f.Add([]byte(lines))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(_ *testing.T, head []byte) { _ = Explain(head, "JSON") })
}

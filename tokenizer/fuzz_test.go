package tokenizer

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/limittest"
	"github.com/easyrl/easyrl/internal/lossy"
)

// checkAny uses a tokenizer made from arbitrary bytes. It may lose text but must
// not fail.
func checkAny(t *testing.T, tok *Tokenizer) {
	t.Helper()
	for _, text := range []string{"", "ab 1<eos>\xff\n", "aaaabcabc"} {
		for _, id := range append(tok.mustEncode(text), tok.mustEncodePrompt(text)...) {
			require.True(t, id >= 0 && int(id) < tok.VocabSize(), "id %d of %d", id, tok.VocabSize())
		}
		tok.Decode(tok.mustEncode(text))
	}
	for _, id := range tok.StopIDs() {
		require.True(t, id >= 0 && int(id) < tok.VocabSize())
	}
}

func FuzzRoundTrip(f *testing.F) {
	for i, s := range []string{"", "abc ab\n\nab", "\xff\xfe", "'LL 123 日本 \u0301", "<think>a<eo s>", "\r\n\t x"} {
		f.Add(s, uint16(1<<(2*i)))
	}
	toks := make(map[string]*Tokenizer)
	all := maps.Clone(patterns)
	for name, steps := range splitSteps() {
		if p, ok := steps[len(steps)-2]["pattern"].(object); ok {
			all[name] = p["Regex"].(string)
		}
	}
	for name, pattern := range all {
		toks[name] = loaded(f, func(o object) {
			o["pre_tokenizer"].(object)["pretokenizers"].([]object)[0]["pattern"] = object{"Regex": pattern}
		})
	}
	f.Fuzz(func(t *testing.T, text string, times uint16) {
		text = repeated(text, times)
		want := strings.ReplaceAll(text, "<eos>", "")
		for name, tok := range toks {
			var ids []int32
			limittest.Run(t, func() { ids = tok.mustEncode(text) })
			require.Equal(t, want, bytesOf(tok, ids), name)
			require.Equal(t, lossy.String(want), tok.Decode(ids), name)
			require.LessOrEqual(t, len(ids), len(text))
			for range 2 { // the second time caches words
				require.Equal(t, ids, tok.mustEncode(text), "the cache must not change the result")
			}
		}
	})
}

// repeated returns text repeated up to 4 KiB, so that short input can give long
// text.
func repeated(text string, times uint16) string {
	if text == "" {
		return ""
	}
	return strings.Repeat(text, max(1, min(int(times), 1<<12/len(text))))
}

func FuzzPatterns(f *testing.F) {
	f.Add("I'll  go 123\r\n\r\n  S's \u0085\u3000x")
	both := make(map[string]func(string) (fast, re []string))
	for name, pattern := range patterns {
		both[name] = bothWays(f, pattern)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ReplaceAll(text, "ſ", "s") // the library's (?i) does not fold it to s
		for name := range patterns {
			fast, re := both[name](text)
			require.Equal(t, re, fast, name)
		}
	})
}

func FuzzTokenizerJSON(f *testing.F) {
	small := synthetic()
	small["model"] = object{"type": "BPE", "vocab": object{"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": []string{"a b"}}
	small["added_tokens"] = []object{{"id": 4, "content": "<eos>", "special": true, "lstrip": true}}
	data, err := json.Marshal(small)
	require.NoError(f, err)
	f.Add(string(data), `{"eos_token":"<eos>","bos_token":{"content":"a"},"add_bos_token":true}`)
	f.Add(`{"model":{"merges":[["a","b"]],"vocab":{"a":0,"b":1,"ab":2}},"pre_tokenizer":{"type":"ByteLevel"}}`,
		`{"added_tokens_decoder":{"7":{"content":"x"}}}`)
	f.Add(`{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]}}`, `{}`)
	f.Fuzz(func(t *testing.T, file, config string) {
		c, err := parseConfig([]byte(config))
		if err != nil {
			return
		}
		tok, err := parseFile([]byte(file), c)
		if err == nil && tok.finish(c) == nil {
			limittest.Run(t, func() { checkAny(t, tok) })
		}
	})
}

func FuzzConfigAndMerges(f *testing.F) {
	f.Add(`{"char_ords":[48,49],"eos_token":"E"}`, `{}`, "")
	f.Add(`{"tokenizer_class":"GPT2Tokenizer","eos_token":"b","additional_special_tokens":["a"]}`,
		`{"a":0,"b":1,"ab":2}`, "#version: 0.2\na b\n")
	f.Add(`{"add_prefix_space":true,"added_tokens_decoder":{"9":{"content":"<eos>","rstrip":true}}}`,
		`{"Ġ":0,"a":1}`, "\r\nĠ a")
	f.Fuzz(func(t *testing.T, config, vocab, merges string) {
		dir := t.TempDir()
		for name, text := range map[string]string{"tokenizer_config.json": config, "vocab.json": vocab,
			"merges.txt": merges} {
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
		}
		if tok, err := Load(dir); err == nil {
			checkAny(t, tok)
		} else {
			require.False(t, errors.Is(err, ErrNone) && vocab != "" && merges != "", "%v", err)
		}
	})
}

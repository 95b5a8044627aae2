package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
	"github.com/easyrl/easyrl/tokenizer/internal/budget"
)

// speedSize is the length of the texts in speed measurements.
const speedSize = 1 << 20

// speedTexts returns texts of about size bytes that may be hard for a tokenizer:
// most have no place to split.
func speedTexts(size int) map[string]string {
	r := rand.New(rand.NewPCG(7, 8))
	fill := func(next func() string) string {
		var b strings.Builder
		for b.Len() < size {
			b.WriteString(next())
		}
		return b.String()
	}
	one := func(chars string) func() string {
		all := []rune(chars)
		return func() string { return string(all[r.IntN(len(all))]) }
	}
	between := func(from, to rune) func() string {
		return func() string { return string(from + r.Int32N(to-from)) }
	}
	bytes := []byte(fill(func() string { return string([]byte{byte(r.Uint32())}) }))
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	letters, marks := one("abcdefghijklmnopqrstuvwxyz"), between(0x300, 0x34f)
	texts := map[string]string{
		"letter":      repeat("a"),
		"alphabet":    repeat("abcdefghijklm"),
		"letters":     fill(letters),
		"capitals":    fill(one("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")),
		"bytes":       string(bytes),
		"unicode":     fill(func() string { return string(utf8.AppendRune(nil, r.Int32N(utf8.MaxRune))) }),
		"cjk":         fill(between(0x4e00, 0x9fff)),
		"hangul":      fill(between(0xac00, 0xd7a3)),
		"jamo":        fill(between(0x1100, 0x11ff)),
		"digit":       repeat("0"),
		"digits":      fill(one("0123456789")),
		"sign":        repeat("="),
		"signs":       fill(one("!#$%&()*+,-./:;=>?@[]^_{|}~\"'\\`<")),
		"spaces":      repeat(" "),
		"newlines":    repeat("\n"),
		"carriages":   repeat("\r\n"),
		"blanks":      fill(one(" \t\n\r\u00a0\u3000")),
		"emoji":       repeat("👩‍👩‍👧‍👦🏳️‍🌈👍🏽"),
		"emojis":      fill(between(0x1f300, 0x1faff)),
		"marks":       fill(marks),
		"mark":        repeat("\u0301"),
		"long marks":  fill(func() string { return letters() + strings.Repeat("\u0316\u0301", 40) }),
		"short marks": fill(func() string { return letters() + marks() }),
		"composable":  repeat("e\u0301"),
		"tibetan":     fill(between(0xf71, 0xf84)),
		"base64":      base64.StdEncoding.EncodeToString(bytes[:size*3/4]),
		"json": fill(func() string {
			return `{"id":` + string('0'+rune(r.IntN(10))) + `,"` + letters() + letters() + `":[1.5,null,"` +
				letters() + `"]},`
		}),
		"quotes":        repeat("'"),
		"merges":        repeat("the"),
		"less":          repeat("<"),
		"less bar":      repeat("<|"),
		"almost token":  repeat("<|im_start|"),
		"markdown rule": repeat("-------- "),
	}
	return texts
}

// speedTokenizers load the tokenizers of the folder of real data, a character
// model with GPT-2's merges, and Qwen3's with other models' patterns.
func speedTokenizers(t testing.TB) map[string]func() *Tokenizer {
	t.Helper()
	root := filepath.Join(testData(t), "tokenizers")
	toks := make(map[string]func() *Tokenizer)
	load := func(dir string) func() *Tokenizer {
		return func() *Tokenizer {
			tok, err := Load(dir)
			require.NoError(t, err)
			return tok
		}
	}
	dirs, err := filepath.Glob(filepath.Join(root, "*"))
	require.NoError(t, err)
	for _, dir := range dirs {
		toks[filepath.Base(dir)] = load(dir)
	}
	toks["qwen3"] = load(realFolders(t, "qwen2")[2]) // its file has another name
	toks["characters"] = func() *Tokenizer {
		return characterTokenizer(t, filepath.Join(root, "phi2_gpt2bpe", "tokenizer.json"))
	}
	for name, steps := range splitSteps() {
		toks["split "+name] = func() *Tokenizer {
			return patternTokenizer(t, filepath.Join(root, "qwen3", "tokenizer.derived.json"), steps)
		}
	}
	return toks
}

// splitSteps returns pre-tokenizers of models without a file here.
func splitSteps() map[string][]object {
	split := func(pattern string) object {
		return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated"}
	}
	end := object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	const contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	return map[string][]object{
		"llama3": {split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ` +
			`?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`), end},
		"o200k": {split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
			contractions + `?|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + contractions + `?|` +
			`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`), end},
		"tekken": {split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
			`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`), end},
		"deepseek3": {
			split(`\p{N}{1,3}`), split(`[一-龥぀-ゟ゠-ヿ]+`),
			split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| " +
				"?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), end,
		},
		"deepseek": {
			split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
			{"type": "Digits", "individual_digits": true}, end,
		},
		"qwen3.5": {split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ` +
			`?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`), end},
		"starcoder": {{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": false}},
	}
}

func readObject(t testing.TB, path string) object {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var o object
	require.NoError(t, json.Unmarshal(data, &o))
	return o
}

func patternTokenizer(t testing.TB, path string, steps []object) *Tokenizer {
	t.Helper()
	f := readObject(t, path)
	f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": steps}
	tok, err := Load(write(t, object{"tokenizer.json": f}))
	require.NoError(t, err)
	return tok
}

// characterTokenizer takes the pieces and merges of a byte-level file that are
// characters, with fallback to bytes, as in Llama 2's.
func characterTokenizer(t testing.TB, path string) *Tokenizer {
	t.Helper()
	m := readObject(t, path)["model"].(object)
	alpha := bpe.NewAlphabet()
	vocab := map[string]int{"<unk>": 0, "<s>": 1, "</s>": 2}
	for b := range 256 {
		vocab[bytePiece(byte(b))] = len(vocab)
	}
	spell := func(piece string) (string, bool) {
		text, ok := alpha.Decode(piece)
		return strings.ReplaceAll(text, " ", bpe.SpaceMark), ok && utf8.ValidString(text)
	}
	for _, piece := range slices.Sorted(maps.Keys(m["vocab"].(object))) {
		if text, ok := spell(piece); ok {
			vocab[text] = len(vocab)
		}
	}
	var merges [][2]string
	for _, merge := range m["merges"].([]any) {
		a, b, _ := strings.Cut(merge.(string), " ")
		left, okLeft := spell(a)
		right, okRight := spell(b)
		if okLeft && okRight {
			merges = append(merges, [2]string{left, right})
		}
	}
	tok, err := Load(write(t, object{"tokenizer.json": object{
		"normalizer": object{"type": "Sequence", "normalizers": []object{
			{"type": "Prepend", "prepend": bpe.SpaceMark},
			{"type": "Replace", "pattern": object{"String": " "}, "content": bpe.SpaceMark},
		}},
		"decoder": object{"type": "Sequence", "decoders": []object{
			{"type": "Replace", "pattern": object{"String": bpe.SpaceMark}, "content": " "}, {"type": "ByteFallback"},
			{"type": "Fuse"},
			{"type": "Strip", "content": " ", "start": 1, "stop": 0},
		}},
		"model": object{"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
			"merges": merges},
	}}))
	require.NoError(t, err)
	return tok
}

func bytePiece(b byte) string {
	return "<0x" + strings.ToUpper(string("0123456789abcdef"[b>>4])+string("0123456789abcdef"[b&15])) + ">"
}

// BenchmarkSpeed measures a megabyte of each kind of text. All should exceed 5
// MB/s.
func BenchmarkSpeed(b *testing.B) {
	toks, texts := speedTokenizers(b), speedTexts(speedSize)
	for _, name := range slices.Sorted(maps.Keys(toks)) {
		load := sync.OnceValue(toks[name])
		for _, kind := range slices.Sorted(maps.Keys(texts)) {
			b.Run(name+"/"+kind, func(b *testing.B) {
				tok := load()
				b.SetBytes(int64(len(texts[kind])))
				b.ReportAllocs()
				for b.Loop() {
					tok.mustEncode(texts[kind])
				}
			})
		}
	}
}

// Each kind of text decodes to itself, or to its normalized form.
func TestSpeedTextsRoundTrip(t *testing.T) {
	t.Parallel()
	toks, texts := speedTokenizers(t), speedTexts(1<<15)
	for _, name := range []string{"gpt2", "qwen3", "characters", "split deepseek3"} {
		tok := toks[name]()
		for kind, text := range texts {
			ids := tok.mustEncode(text)
			if name == "characters" { // a run of bytes decodes as a whole or not at all
				require.True(t, tok.Decode(ids) == text || !utf8.ValidString(text), "%s %s", name, kind)
				continue
			}
			want := tok.normal.Apply(budget.New(len(text)), text)
			require.True(t, bytesOf(tok, ids) == want, "%s %s", name, kind)
			require.True(t, tok.Decode(ids) == lossy.String(want), "%s %s", name, kind)
		}
	}
}

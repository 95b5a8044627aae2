package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
)

const (
	gpt2Short = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ` +
		`?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var patterns = map[string]string{"gpt2": split.GPT2, "gpt2 short": gpt2Short, "llama3": llama3, "qwen2": split.Qwen2}

// cut returns the non-empty pieces that splitters make of a text.
func cut(text string, steps ...split.Step) []string {
	all := []string{}
	for range 5 { // on a busy machine a regular expression may exceed its time
		b := budget.New(len(text))
		all = all[:0]
		split.NewWalk(steps).Words(b, text, true, func(p string) { all = append(all, p) })
		if b.Err() == nil {
			break
		}
	}
	return all
}

// bothWays returns a function that splits by the compiled pattern, and by the regular expression itself.
func bothWays(t testing.TB, pattern string) func(text string) (fast, re []string) {
	t.Helper()
	compiled, err := regexp2.Compile(pattern, regexp2.None)
	require.NoError(t, err)
	find, err := split.Compile(pattern)
	require.NoError(t, err)
	_, slow := find.(split.Regexp)
	require.False(t, slow, pattern)
	return func(text string) (fast, re []string) {
		return cut(text, &split.Pattern{Find: find, Behavior: split.Isolated}),
			cut(text, &split.Pattern{Find: split.Regexp{Regexp: compiled}, Behavior: split.Isolated})
	}
}

// otherPatterns returns those of splitSteps and some with other features.
func otherPatterns() []string {
	all := []string{
		`[b-dA\-]+|[^a-z\s-]`, `a?b{2}|\.{1,}|(?=b)[ab]`, `(a|b|)c?(?!d)1`, `[ab]*b|[ab]+b`, `\P{L}\D\S?`,
		`(?i:[sdmt]|ll|ve|re)`,
		`(?i:é|ß)(?:'s)?`, `.+`, `\p{Han}+|日`, `\-\]|[\-\]_]`, `(?=(?!ab)a?)[ab]`,
	}
	for _, steps := range splitSteps() {
		for _, step := range steps {
			if p, ok := step["pattern"].(object); ok {
				all = append(all, p["Regex"].(string))
			}
		}
	}
	return all
}

func TestCompiledMatchesLibrary(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	for _, pattern := range otherPatterns() {
		both := bothWays(t, pattern)
		for range 300 {
			text := ""
			for range r.IntN(24) {
				text += randomText(r, 1) + string("abcdlverLS.,-]_"[r.IntN(15)])
			}
			fast, re := both(text)
			require.Equal(t, re, fast, "%s %q", pattern, text)
		}
	}
}

func TestPossessive(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{`a*+a|b`: "aaa|b", `[ab]?+b`: "aa|ab", `a++b`: "aaab",
		`(?i:ſ)`: "aaab"} {
		find, err := split.Compile(pattern)
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(cut("aaab", &split.Pattern{Find: find, Behavior: split.Isolated}), "|"),
			pattern)
	}
}

// Compile leaves patterns that its own matcher does not support, or may read
// differently, to the library.
func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"", "a*", "(", ")", "a)", "[", "[]", "[a", "a{", "a{2", "a{3,2}", "a{0}", "a{2}+", "a**", "a+?", "(ab)*",
		"(a)+", "(?!a)?b", "(?<=a)b", "(?>a)", "(?i)a", "(*a)",
		`\b`, `\1`, `\pL`, `\p{Nope}`, "[[:nope:]]", "[[:alpha:]", "[a&&]", "[a-b-c]", "[b-a]", "[a-[b]]", `[a-\s]`,
		`\x80`, `\x{110000}`, `\x`, "^a", "$", "a|", "\xff",
		strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100), strings.Repeat("a", 20000),
	} {
		find, err := split.Compile(pattern)
		_, slow := find.(split.Regexp)
		require.True(t, err != nil || slow, "%.50q", pattern)
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{split.GPT2, "I'll  go, 'S 2024!\n\n x",
			[]string{"I", "'ll", " ", " go", ",", " '", "S", " 2024", "!", "\n\n", " x"}},
		{split.Qwen2, "I'LL  go, 'S 12!\n\n x",
			[]string{"I", "'LL", " ", " go", ",", " '", "S", " ", "1", "2", "!\n\n", " x"}},
		{llama3, "1234567 \t\n\n  x\u3000y", []string{"123", "456", "7", " \t\n\n", " ", " x", "\u3000y"}},
		{split.Qwen2, "(foo)'ſ ", []string{"(foo", ")'", "ſ", " "}},
		{split.Qwen2, "a'ſb", []string{"a", "'ſ", "b"}},
	} {
		find, err := split.Compile(c.pattern)
		require.NoError(t, err)
		got := cut(c.text, &split.Pattern{Find: find, Behavior: split.Isolated})
		require.Equal(t, c.want, got, "%q", c.text)
	}
}

// randomText joins random characters that the patterns distinguish.
func randomText(r *rand.Rand, n int) string {
	atoms := []string{"a", "B", "é", "日", "ß", "1", "²", "Ⅷ", "٣", " ", "  ", "\t", "\u00a0", "\u3000", "\u0085", "\n",
		"\r\n", "'", "'s", "'LL", "'Ve", "'d",
		".", "!", "—", "\u0301", "😀", "\x00", "\x1f", "\xff", "\xe6\x97", "_"}
	var b strings.Builder
	for range n {
		b.WriteString(atoms[r.IntN(len(atoms))])
	}
	return b.String()
}

func TestPatternsMatchLibrary(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for name, pattern := range patterns {
		both := bothWays(t, pattern)
		for range 400 {
			text := randomText(r, r.IntN(24))
			fast, re := both(text)
			require.Equal(t, re, fast, "%s %q", name, text)
		}
	}
}

func TestSplitBehaviors(t *testing.T) {
	t.Parallel()
	find, err := split.Compile(`-`)
	require.NoError(t, err)
	for _, f := range []split.Finder{find, split.Literal("-")} {
		for _, c := range []struct {
			b      split.Behavior
			invert bool
			want   string
		}{
			{split.Isolated, false, "the|-|final|-|-|count|-"},
			{split.Isolated, true, "the|-|final|-|-|count|-"},
			{split.Removed, false, "the|final|count"},
			{split.Removed, true, "-|-|-|-"},
			{split.Contiguous, false, "the|-|final|--|count|-"},
			{split.MergedWithPrevious, false, "the-|final-|-|count-"},
			{split.MergedWithNext, false, "the|-final|-|-count|-"},
			{split.MergedWithNext, true, "the-|final-|-|count-"},
		} {
			got := cut("the-final--count-", &split.Pattern{Find: f, Behavior: c.b, Invert: c.invert})
			require.Equal(t, strings.Split(c.want, "|"), got, "%s %v", c.b, c.invert)
		}
	}
	require.Equal(t, []string{"日-é"}, cut("日-é", &split.Pattern{Find: split.Literal(""), Behavior: split.Isolated}))
}

func TestRegexOffsets(t *testing.T) {
	t.Parallel()
	find, err := split.Compile(`[一-龥]+|\d(?=\d)`)
	require.NoError(t, err)
	s := &split.Pattern{Find: find, Behavior: split.Isolated}
	require.Equal(t, []string{"é", "日本", "\xffx", "1", "2", "3😀", "語"}, cut("é日本\xffx123😀語", s))
	empty, err := split.Compile(`x*`)
	require.NoError(t, err)
	require.Equal(t, []string{"日", "xx", "é"}, cut("日xxé", &split.Pattern{Find: empty, Behavior: split.Isolated}))
}

func TestPreTokenizerSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps []object
		text  string
		want  []string
	}{
		{"byte level", []object{{"type": "ByteLevel"}}, "ab 12's", []string{"ab", " 12", "'s"}},
		{"prefix space", []object{{"type": "ByteLevel", "add_prefix_space": true}}, "ab", []string{" ab"}},
		{"existing prefix space", []object{{"type": "ByteLevel", "add_prefix_space": true}}, " ab", []string{" ab"}},
		{"digits", []object{{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "use_regex": false}},
			"a12b", []string{"a", "1", "2", "b"}},
		{"digit runs", []object{{"type": "Digits"}, {"type": "ByteLevel", "use_regex": false}}, "12ab3",
			[]string{"12", "ab", "3"}},
		{
			"several", []object{
				{"type": "Split", "pattern": object{"Regex": `\p{N}{1,3}`}, "behavior": "Isolated"},
				{"type": "Split", "pattern": object{"String": "x"}, "behavior": "Removed"},
				{"type": "ByteLevel", "use_regex": true},
			}, "1234xa bx", []string{"123", "4", "a", " b"},
		},
	} {
		data, err := json.Marshal(object{"type": "Sequence", "pretokenizers": c.steps})
		require.NoError(t, err)
		var read component
		require.NoError(t, json.Unmarshal(data, &read))
		steps, end, err := appendSplit(nil, &read, false)
		require.NoError(t, err)
		require.True(t, end, c.name)
		require.Equal(t, c.want, cut(c.text, steps...), c.name)
	}
}

func TestInferPattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class string
		vocab map[string]int32
		want  string
	}{
		{"", map[string]int32{".com": 0, "abc": 1, "1": 2}, split.Qwen2},
		{"CodeGenTokenizer", map[string]int32{"abc": 0, "Ġ12": 1}, split.GPT2},
		{"Qwen2TokenizerFast", map[string]int32{"Ġ12": 1}, split.Qwen2},
		{"GPT2Tokenizer", map[string]int32{".com": 1}, split.GPT2},
	} {
		got, err := inferPattern(c.class, c.vocab)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// bytesOf returns the bytes of ids, which Decode replaces where they are not UTF-8.
func bytesOf(tok *Tokenizer, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(tok.Bytes(id))
	}
	return b.String()
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	tok := loaded(t, func(f object) { f["normalizer"] = object{"type": "NFC"} })
	acutes := strings.Repeat("\u0301", 40)
	for in, want := range map[string]string{
		"e\u0301":                     "é",
		"\u1100\u1161\u11a8":          "각",
		"\xffe\u0301\xfe":             "\xffé\xfe",
		"a" + acutes:                  "á" + acutes[2:],
		"\xffe" + acutes + "\xe6z":    "\xffé" + acutes[2:] + "\xe6z",
		"q\u0323" + acutes + "\u0327": "q\u0327\u0323" + acutes,
		"\u1100\u1161" + acutes:       "가" + acutes,
		"\u212b\u0958":                "Å\u0915\u093c",
	} {
		require.Equal(t, want, bytesOf(tok, tok.mustEncode(in)), "%q", in)
	}
	for kind, want := range map[string]string{"NFD": "e\u0301ﬁ", "NFKD": "e\u0301fi", "NFKC": "éfi"} {
		tok := loaded(t, func(f object) { f["normalizer"] = object{"type": kind} })
		require.Equal(t, want, tok.Decode(tok.mustEncode("éﬁ")), kind)
		require.Equal(t, want+strings.Repeat("\u0316", 40),
			tok.Decode(tok.mustEncode("éﬁ"+strings.Repeat("\u0316", 40))), kind)
	}
}

// Text without a space, in any class of characters, is encoded in linear time and
// decodes to itself.
func TestLongWords(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		split.GPT2, llama3, split.Qwen2, `\p{N}{1,3}`,
		`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	} {
		tok := loaded(t, func(f object) {
			f["pre_tokenizer"].(object)["pretokenizers"].([]object)[0]["pattern"] = object{"Regex": pattern}
		})
		for _, atom := range []string{"a", "abc", "日", "1", "!", " ", "\n", " \n", "<", "'", "\xff", "<eos"} {
			size := 1 << 15
			if atom == "abc" && pattern == split.Qwen2 {
				size = 1 << 20
			}
			text := strings.Repeat(atom, size/len(atom))
			require.True(t, bytesOf(tok, tok.mustEncode(text)) == text, "%s %q", pattern, atom)
		}
	}
}

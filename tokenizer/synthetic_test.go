package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
)

type object = map[string]any

// alphabet returns a vocabulary of all 256 bytes, with ids in byte order,
// followed by pieces.
func alphabet(pieces ...string) map[string]int32 {
	vocab := make(map[string]int32)
	a := bpe.NewAlphabet()
	for b := range 256 {
		vocab[a.Spell(byte(b))] = int32(b)
	}
	for _, p := range pieces {
		vocab[p] = int32(len(vocab))
	}
	return vocab
}

// synthetic returns a small tokenizer.json: the bytes, a few merges, Qwen2's
// pre-tokenizer, a special token 300 and an ordinary one 301.
func synthetic() object {
	return object{
		"normalizer": nil,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": split.Qwen2}, "behavior": "Isolated", "invert": false},
			{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		}},
		"post_processor": object{"type": "ByteLevel"},
		"decoder":        object{"type": "ByteLevel"},
		"added_tokens": []object{
			{"id": 300, "content": "<eos>", "special": true},
			{"id": 301, "content": "<think>"},
		},
		"model": object{
			"type":   "BPE",
			"vocab":  alphabet("ab", "abc", "bc", "Ġa", "Ġab", "aa"), // 256...261
			"merges": []string{"a b", "b c", "ab c", "Ġ a", "Ġ ab", "a a"},
		},
	}
}

// write creates a folder of JSON and text files.
func write(t testing.TB, files object) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		data, ok := content.(string)
		if !ok {
			b, err := json.Marshal(content)
			require.NoError(t, err)
			data = string(b)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	return dir
}

// loaded loads the synthetic tokenizer.json after change.
func loaded(t testing.TB, change func(object)) *Tokenizer {
	t.Helper()
	f := synthetic()
	if change != nil {
		change(f)
	}
	tok, err := Load(write(t, object{"tokenizer.json": f}))
	require.NoError(t, err)
	return tok
}

func TestEncode(t *testing.T) {
	t.Parallel()
	tok := loaded(t, nil)
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"", nil},
		{"a", []int32{'a'}},
		{"abc", []int32{257}},                // a b first, then ab c
		{"bc", []int32{258}},                 // b c
		{"bbc", []int32{'b', 258}},           // the right pair of equal first symbols
		{"aaa", []int32{261, 'a'}},           // the leftmost of equal rank
		{" ab", []int32{260}},                // Ġ ab
		{"aab", []int32{'a', 256}},           // rank before position
		{"a<eos>bc", []int32{'a', 300, 258}}, // special tokens are matched in the text
		{"<think>ab</th", []int32{301, 256, '<', '/', 't', 'h'}},
		{"<eos", []int32{'<', 'e', 'o', 's'}},     // incomplete
		{"é", []int32{0xc3, 0xa9}},                // bytes
		{"\xff\xfe", []int32{0xff, 0xfe}},         // not UTF-8
		{"12", []int32{'1', '2'}},                 // digits one by one
		{"a\n\nb", []int32{'a', '\n', '\n', 'b'}}, // white space
	} {
		require.Equal(t, c.want, append([]int32(nil), tok.mustEncode(c.text)...), "%q", c.text)
		require.Equal(t, lossy.String(strings.ReplaceAll(c.text, "<eos>", "")), tok.Decode(c.want), "%q", c.text)
		require.Equal(t, tok.mustEncode(c.text), tok.mustEncodePrompt(c.text), "no template")
	}
	require.Equal(t, 302, tok.VocabSize())
	require.Equal(t, []string{"tokenizer.json"}, tok.Files())
	require.Empty(t, tok.StopIDs())
	require.Equal(t, "ab<think>", tok.Decode([]int32{-1, 256, 280, 300, 301, 302, 1 << 30}),
		"unknown ids decode to nothing")
}

func TestTokenID(t *testing.T) {
	t.Parallel()
	tok := loaded(t, nil)
	for piece, want := range map[string]int32{"<eos>": 300, "<think>": 301, "Ġa": 259, "a": 'a', "Ċ": '\n'} {
		id, ok := tok.TokenID(piece)
		require.True(t, ok, piece)
		require.Equal(t, want, id, piece)
	}
	for _, piece := range []string{"", "zz", " a", "日"} {
		_, ok := tok.TokenID(piece)
		require.False(t, ok, piece)
	}
}

func TestMergesAsPairsAndParts(t *testing.T) {
	t.Parallel()
	want := loaded(t, nil)
	pairs := loaded(t, func(f object) {
		m := f["model"].(object)
		var list [][]string
		for _, line := range m["merges"].([]string) {
			list = append(list, strings.Split(line, " "))
		}
		m["merges"] = list
	})
	m := synthetic()["model"].(object)
	parts, err := Load(write(t, object{
		"vocab.json":        m["vocab"],
		"merges.txt":        "#version: 0.2\r\n" + strings.Join(m["merges"].([]string), "\r\n") + "\n",
		"added_tokens.json": object{"<think>": 301, "<eos>": 300},
		"tokenizer_config.json": object{"tokenizer_class": "Qwen2Tokenizer", "eos_token": object{"content": "<eos>"},
			"added_tokens_decoder": object{"300": object{"content": "<eos>", "special": true}}},
	}))
	require.NoError(t, err)
	require.Equal(t, []int32{300}, parts.StopIDs())
	require.ElementsMatch(t, []string{"vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json"},
		parts.Files())
	for _, text := range []string{"abcabc abab aaaaa", "<think>abc<eos>", "caab\n abc 123"} {
		require.Equal(t, want.mustEncode(text), pairs.mustEncode(text))
		require.Equal(t, want.mustEncode(text), parts.mustEncode(text))
		require.Equal(t, want.Decode(want.mustEncode(text)), parts.Decode(parts.mustEncode(text)))
	}
}

func TestModelOptions(t *testing.T) {
	t.Parallel()
	model := func(set func(object)) *Tokenizer {
		return loaded(t, func(f object) { set(f["model"].(object)) })
	}
	direct := model(func(m object) { m["ignore_merges"], m["merges"] = true, []string{} })
	require.Equal(t, []int32{257, 260}, direct.mustEncode("abc ab"), "words that are pieces")
	require.Equal(t, []int32{'a', 'b', 'a'}, direct.mustEncode("aba"), "other words are not merged")
	small := object{"a": 0, "b": 1, "<unk>": 2, "ab": 3}
	set := func(m object, unk any, fuse bool) {
		m["vocab"], m["merges"], m["unk_token"], m["fuse_unk"] = small, []string{"a b"}, unk, fuse
	}
	plain := func(f object) { f["added_tokens"] = nil }
	for _, c := range []struct {
		name string
		unk  any
		fuse bool
		want []int32
	}{
		{"dropped", nil, false, []int32{3, 0}},
		{"unknown", "<unk>", false, []int32{3, 2, 2, 0}},
		{"fused", "<unk>", true, []int32{3, 2, 0}},
	} {
		tok := loaded(t, func(f object) { plain(f); set(f["model"].(object), c.unk, c.fuse) })
		require.Equal(t, c.want, tok.mustEncode("abxya"), c.name)
		require.Equal(t, map[bool]int32{false: -1, true: 2}[c.unk != nil], tok.Unknown(), c.name)
	}
	last := model(func(m object) { m["merges"] = []string{"a b", "b c", "ab c", "a b"} }) // a b has rank 3
	require.Equal(t, []int32{'a', 258}, last.mustEncode("abc"), "the last rank of a pair wins")
}

func TestAddedTokenFlags(t *testing.T) {
	t.Parallel()
	with := func(flags object) *Tokenizer {
		maps.Copy(flags, object{"id": 300, "content": "<x>"})
		return loaded(t, func(f object) {
			f["added_tokens"] = []object{flags, {"id": 301, "content": "<x><y>"}, {"id": 302, "content": ""}}
		})
	}
	bytes := func(s string) (ids []int32) {
		for _, b := range []byte(s) {
			ids = append(ids, int32(b))
		}
		return ids
	}
	cat := func(parts ...[]int32) []int32 { return slices.Concat(parts...) }
	x, xy := []int32{300}, []int32{301}
	for _, c := range []struct {
		name, text string
		flags      object
		want       []int32
	}{
		{"plain", "q <x> r", object{}, cat(bytes("q "), x, bytes(" r"))},
		{"longest", "q<x><y>", object{}, cat(bytes("q"), xy)},
		{"lstrip", "q \n<x> r", object{"lstrip": true}, cat(bytes("q"), x, bytes(" r"))},
		{"rstrip", "q <x> \u00a0r", object{"rstrip": true}, cat(bytes("q "), x, bytes("r"))},
		{"both, twice", "<x> <x>", object{"lstrip": true, "rstrip": true}, cat(x, x)},
		{"single word", "q<x> <x>r <x> <x>", object{"single_word": true}, cat(bytes("q<x> <x>r "), x, bytes(" "), x)},
		{"single word at the edges", "<x>", object{"single_word": true}, x},
		{"single word beside a mark", "\u0301<x>", object{"single_word": true}, bytes("\u0301<x>")},
	} {
		require.Equal(t, c.want, with(c.flags).mustEncode(c.text), c.name)
	}
}

func TestNormalizedAddedToken(t *testing.T) {
	t.Parallel()
	tok := func(normalized bool) *Tokenizer {
		return loaded(t, func(f object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []object{{"type": "NFC"}}}
			f["added_tokens"] = []object{{"id": 300, "content": "e\u0301", "normalized": normalized}}
		})
	}
	require.Equal(t, []int32{300, 300}, tok(true).mustEncode("e\u0301\u00e9"), "in the normalised text")
	require.Equal(t, []int32{300, 0xc3, 0xa9}, tok(false).mustEncode("e\u0301\u00e9"), "in the original text")
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	template := object{"type": "TemplateProcessing",
		"single": []object{{"SpecialToken": object{"id": "<eos>"}}, {"Sequence": object{"id": "A"}},
			{"SpecialToken": object{"id": "two"}}},
		"special_tokens": object{"<eos>": object{"ids": []int{300}}, "two": object{"ids": []int{301, 301}}}}
	want := []int32{300, 'q', 301, 301}
	one := loaded(t, func(f object) { f["post_processor"] = template })
	require.Equal(t, want, one.mustEncodePrompt("q"))
	require.Equal(t, []int32{'q'}, one.mustEncode("q"))
	seq := loaded(t, func(f object) {
		f["post_processor"] = object{"type": "Sequence", "processors": []object{{"type": "ByteLevel"}, template}}
	})
	require.Equal(t, want, seq.mustEncodePrompt("q"))
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	load := func(config, special any) (*Tokenizer, error) {
		files := object{"tokenizer.json": synthetic(), "chat_template.jinja": "{{ x }}"}
		if config != nil {
			files["tokenizer_config.json"] = config
		}
		if special != nil {
			files["special_tokens_map.json"] = special
		}
		return Load(write(t, files))
	}
	tok, err := load(object{"eos_token": "<think>", "bos_token": "<eos>", "add_bos_token": true, "pad_token": nil,
		"added_tokens_decoder": object{"301": object{"content": "<think>"},
			"305": object{"content": "<new>", "special": true}},
		"additional_special_tokens": []string{"abc", "nowhere"}}, nil)
	require.NoError(t, err)
	require.Equal(t, []int32{301}, tok.StopIDs())
	require.Equal(t, []int32{300, 305, 'q', 257}, tok.mustEncodePrompt("<new>qabc"))
	require.Equal(t, "q", tok.Decode(tok.mustEncodePrompt("<new>q<think>abc")),
		"Decode omits eos, bos and special tokens")
	require.Equal(t, []string{"<new>", "<eos>", "", "", ""},
		[]string{tok.Special(305), tok.Special(300), tok.Special('q'), tok.Special(999), tok.Special(-1)})
	require.Equal(t, 306, tok.VocabSize())
	require.Equal(t, []string{"tokenizer_config.json", "tokenizer.json", "chat_template.jinja"}, tok.Files())

	tok, err = load(object{}, object{"eos_token": object{"content": "<eos>"}})
	require.NoError(t, err)
	require.Equal(t, []int32{300}, tok.StopIDs(), "special_tokens_map.json also names it")

	for _, c := range []struct {
		config any
		want   string
	}{
		{object{"eos_token": "<nope>"}, `tokenizer_config.json: eos_token "<nope>" is not in the vocabulary`},
		{object{"eos_token": 5}, "expected a string, null or an object with content"},
		{object{"added_tokens_decoder": object{"x": object{"content": "y"}}}, `added_tokens_decoder key "x"`},
		{object{"added_tokens_decoder": object{"302": object{"content": "<eos>"}}},
			`added token "<eos>" has ids 300 and 302`},
		{object{"bos_token": "<b>", "add_bos_token": true}, `bos_token "<b>"`},
		{"{", "tokenizer_config.json: unexpected end"},
	} {
		_, err := load(c.config, nil)
		require.ErrorContains(t, err, c.want)
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(f, model object)
		want   string
	}{
		{"model", func(_, m object) { m["type"] = "Unigram"; m["vocab"] = []any{} }, `model type "Unigram"`},
		{"no model", func(f, _ object) { delete(f, "model") }, `model type ""`},
		{"normalizer", func(f, _ object) { f["normalizer"] = object{"type": "Precompiled"} },
			`normalizer "Precompiled"`},
		{"normalizer inside", func(f, _ object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []object{{"type": "NFC"}, {"type": "Nmt"}}}
		}, `normalizer "Nmt"`},
		{"pre-tokenizer", func(f, _ object) { f["pre_tokenizer"] = object{"type": "UnicodeScripts"} },
			`pre_tokenizer "UnicodeScripts"`},
		{"metaspace", func(f, _ object) { f["pre_tokenizer"] = object{"type": "Metaspace"} },
			`pre_tokenizer: step Metaspace: replacement ""`},
		{"metaspace scheme", func(f, _ object) {
			f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "_", "prepend_scheme": "odd"}
		}, `prepend_scheme "odd"`},
		{"punctuation", func(f, _ object) {
			f["pre_tokenizer"] = object{"type": "Punctuation", "behavior": "Odd"}
		}, `Punctuation: behavior "Odd"`},
		{"delimiter", func(f, _ object) { f["pre_tokenizer"] = object{"type": "CharDelimiterSplit"} },
			"has no delimiter"},
		{"replace", func(f, _ object) { f["normalizer"] = object{"type": "Replace"} },
			"normalizer Replace: no pattern"},
		{"decoder of characters", func(f, _ object) {
			f["pre_tokenizer"], f["decoder"] = nil, object{"type": "WordPiece"}
		}, `decoder "WordPiece"`},
		{"decoder strip", func(f, _ object) {
			f["pre_tokenizer"], f["decoder"] = nil, object{"type": "Strip"}
		}, `decoder Strip: content ""`},
		{"none", func(f, _ object) { f["pre_tokenizer"] = nil }, "pre_tokenizer has no ByteLevel"},
		{"after the bytes", func(f, _ object) {
			f["pre_tokenizer"] = object{"type": "Sequence",
				"pretokenizers": []object{{"type": "ByteLevel"}, {"type": "Digits"}}}
		}, `"Digits" after ByteLevel`},
		{"pattern", func(f, _ object) {
			f["pre_tokenizer"] = object{"type": "Split", "behavior": "Isolated", "pattern": object{"Regex": "(a"}}
		}, `regular expression "(a"`},
		{"no pattern", func(f, _ object) {
			f["pre_tokenizer"] = object{"type": "Split", "behavior": "Isolated"}
		}, "no pattern"},
		{"behavior", func(f, _ object) {
			f["pre_tokenizer"] = object{"type": "Split", "behavior": "Odd"}
		}, `behavior "Odd"`},
		{"decoder", func(f, _ object) {
			f["decoder"] = object{"type": "Sequence", "decoders": []object{{"type": "ByteLevel"}, {"type": "Strip"}}}
		}, `decoder "Strip"`},
		{"post-processor", func(f, _ object) { f["post_processor"] = object{"type": "RobertaProcessing"} },
			`"RobertaProcessing"`},
		{"template", func(f, _ object) {
			f["post_processor"] = object{"type": "TemplateProcessing",
				"single": []object{{"SpecialToken": object{"id": "<s>"}}}}
		}, `token "<s>" is not in special_tokens`},
		{"template without text", func(f, _ object) {
			f["post_processor"] = object{"type": "TemplateProcessing"}
		}, "single has no Sequence"},
		{"template id", func(f, _ object) {
			f["post_processor"] = object{"type": "TemplateProcessing",
				"single":         []object{{"SpecialToken": object{"id": "s"}}, {"Sequence": object{}}},
				"special_tokens": object{"s": object{"ids": []int{999}}}}
		}, "id 999, expected 0 to 301"},
		{"dropout", func(_, m object) { m["dropout"] = 0.1 }, "model.dropout"},
		{"prefix", func(_, m object) { m["continuing_subword_prefix"] = "##" }, "continuing_subword_prefix"},
		{"suffix", func(_, m object) { m["end_of_word_suffix"] = "</w>" }, "end_of_word_suffix"},
		{"fallback", func(_, m object) {
			m["byte_fallback"], m["vocab"], m["merges"] = true, object{"a": 0}, nil
		}, "byte_fallback"},
		{"unk", func(_, m object) { m["unk_token"] = "<unk>" }, `model.unk_token "<unk>"`},
		{"merge", func(_, m object) { m["merges"] = []string{"a b", "q w"} }, `merge 1 "q" "w"`},
		{"merge line", func(_, m object) { m["merges"] = []string{"a b c"} }, `merge 0 "a b c"`},
		{"merge pair", func(_, m object) { m["merges"] = [][]string{{"a"}} }, "merge 0 has 1 pieces, expected 2"},
		{"merges", func(_, m object) { m["merges"] = 5 }, "merges: expected a list"},
		{"vocab", func(_, m object) { m["vocab"] = object{} }, "model.vocab is empty"},
		{"vocab form", func(_, m object) { m["vocab"] = []int{1} }, "model.vocab: expected an object"},
		{"vocab id", func(_, m object) { m["vocab"] = object{"a": -1}; m["merges"] = nil }, `piece "a" has id -1`},
		{"vocab wild id", func(_, m object) { m["vocab"] = object{"a": 2000000000}; m["merges"] = nil },
			`piece "a" has id 2000000000`},
		{"vocab twice", func(_, m object) { m["vocab"] = object{"a": 0, "b": 0}; m["merges"] = nil },
			"vocabulary id 0 belongs to several pieces"},
		{"added id", func(f, _ object) { f["added_tokens"] = []object{{"id": -4, "content": "x"}} },
			`added token "x" has id -4`},
		{"added clash", func(f, _ object) {
			f["added_tokens"] = []object{{"id": 97, "content": "<x>"}}
		}, `id 97 belongs to "a"`},
		{"added vocab", func(f, _ object) { f["added_tokens"] = []object{{"id": 300, "content": "a"}} },
			"but 97 in the vocabulary"},
	} {
		f := synthetic()
		c.change(f, f["model"].(object))
		dir := write(t, object{"tokenizer.json": f})
		_, err := Load(dir)
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, "load tokenizer "+dir+": tokenizer.json: ", c.name)
		require.NotErrorIs(t, err, ErrNone, c.name)
	}
}

func TestNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files object
		want  string
	}{
		{object{}, "expected tokenizer.json"},
		{object{"tokenizer_config.json": object{"eos_token": "x"}}, "expected tokenizer.json"},
		{object{"vocab.json": object{}}, "vocab.json without merges.txt"},
	} {
		_, err := Load(write(t, c.files))
		require.ErrorIs(t, err, ErrNone)
		require.ErrorContains(t, err, c.want)
	}
	_, err := Load(filepath.Join(t.TempDir(), "gone"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(filepath.Join(write(t, object{"f": "x"}), "f"))
	require.ErrorContains(t, err, ": is a file, expected a folder")
	_, err = Load(write(t, object{"vocab.json": object{"a": 0}, "merges.txt": "#version\na b c\n"}))
	require.ErrorContains(t, err, `merges.txt: line 2 "a b c"`)
}

func TestCharacters(t *testing.T) {
	t.Parallel()
	tok, err := Load(write(t, object{"tokenizer_config.json": object{"char_ords": []int{'0', '1', ',', 'é'}}}))
	require.NoError(t, err)
	require.Equal(t, []int32{4, 6, 5, 7, 3, 3}, tok.mustEncode("0,1éz\xff"))
	require.Equal(t, []int32{4, 0}, tok.mustEncodePrompt("0"))
	require.Equal(t, []int32{0, 1, 2, 3}, tok.mustEncode("SEPU"))
	require.Equal(t, "0,é", tok.Decode([]int32{4, 0, 6, 1, 2, 3, 7, 8, -1}))
	require.Equal(t, []int32{1}, tok.StopIDs())
	require.Equal(t, "E", tok.Special(1))
	require.Empty(t, tok.Special(4))
	require.Equal(t, 8, tok.VocabSize())
	id, ok := tok.TokenID(",")
	require.True(t, ok)
	require.Equal(t, int32(6), id)
	for _, piece := range []string{"", "01", "z", "\xff"} {
		_, ok := tok.TokenID(piece)
		require.False(t, ok)
	}
	for ords, want := range map[string]string{"[48,48]": "'0' is listed twice", "[-1]": "char_ords[0] is -1",
		"[55296]": "55296", "[1114112]": "1114112"} {
		_, err := Load(write(t, object{"tokenizer_config.json": `{"char_ords":` + ords + `}`}))
		require.ErrorContains(t, err, want)
	}
}

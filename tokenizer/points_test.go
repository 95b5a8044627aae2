package tokenizer

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// points is testdata/points.json: what Hugging Face tokenizers (version 0.23.3)
// makes of every code point. testdata/python/points.py writes it.
type points struct {
	Cases      []pointCase
	Properties map[string]uint32
	Characters struct{ Firsts, Seconds, Marks string }
	Composed   map[string]map[string][]uint32 // of rows, by the form; one for each 1000
}

// pointCase is a component, or a tokenizer with added tokens.
type pointCase struct {
	Normalizer   *component
	PreTokenizer *component        `json:"pre_tokenizer"`
	Text         string            // @ stands for the code point
	Blocks       map[string]uint32 // by the first of 256 code points; others are like private characters
}

func readPoints(t *testing.T) *points {
	t.Helper()
	data, err := os.ReadFile("testdata/points.json")
	require.NoError(t, err)
	var p points
	require.NoError(t, json.Unmarshal(data, &p))
	return &p
}

func checksum(parts []string) uint32 {
	return crc32.ChecksumIEEE([]byte(strings.Join(parts, "\x00")))
}

// treatment returns what a component makes of texts.
func treatment(t *testing.T, normalizer, pre *component) func([]string) []string {
	t.Helper()
	switch {
	case normalizer != nil:
		normal, err := newNormalizer(normalizer)
		require.NoError(t, err)
		return func(texts []string) []string {
			out := make([]string, len(texts))
			for i, s := range texts {
				out[i] = normal.Apply(budget.New(len(s)), s)
			}
			return out
		}
	case pre != nil:
		steps, _, err := appendSplit(nil, pre, false)
		require.NoError(t, err)
		return func(texts []string) []string { return cut(strings.Join(texts, ""), steps...) }
	}
	tok := loaded(t, func(o object) {
		o["normalizer"] = nil
		o["pre_tokenizer"] = object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
		o["added_tokens"] = []object{{"id": 256, "content": "<w>", "single_word": true},
			{"id": 257, "content": "<s>", "lstrip": true, "rstrip": true}}
		o["model"] = object{"type": "BPE", "vocab": alphabet(), "merges": []string{}}
	})
	return func(texts []string) []string {
		var out []string
		for _, id := range tok.mustEncode(strings.Join(texts, "")) {
			out = append(out, strconv.Itoa(int(id)))
		}
		return out
	}
}

// drawn returns which blocks of 256 code points a component is tested with: those below
// U+3000, which have most kinds of characters, an eighth of the others in planes with
// characters, and a few more. Another component draws others.
func drawn(name string) func(block rune) bool {
	r := rand.New(rand.NewPCG(uint64(checksum([]string{name})), 1))
	return func(block rune) bool {
		share := 8
		if block >= 0x400 {
			share = 64
		}
		return r.IntN(share) == 0 || block < 0x30 || soak.Long()
	}
}

// Every code point is treated as by the library, in every component. Without
// EASYRL_SOAK, each component has only some of the blocks of code points.
func TestEveryCodePoint(t *testing.T) {
	t.Parallel()
	p := readPoints(t)
	require.Greater(t, len(p.Cases), 40)
	for _, c := range p.Cases {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func (c *pointCase) name() string {
	switch {
	case c.Normalizer != nil:
		return c.Normalizer.Type
	case c.PreTokenizer == nil:
		return "added tokens"
	case c.PreTokenizer.Pattern.Regex != nil:
		return *c.PreTokenizer.Pattern.Regex
	}
	return c.PreTokenizer.Type
}

func (c *pointCase) check(t *testing.T) {
	const block, last = 256, 0x110000
	treat := treatment(t, c.Normalizer, c.PreTokenizer)
	count := strings.Count(c.Text, "@")
	plain := strings.ReplaceAll(c.Text, "@", "\ue000")
	texts := make([]string, block)
	for i := range texts {
		texts[i] = plain
	}
	usual := treat(texts)
	require.NotEmpty(t, c.Blocks)
	tested := drawn(c.name())
	for first := rune(0); first < last; first += block {
		if first >= 0xd800 && first < 0xe000 || !tested(first/block) {
			continue
		}
		for i := range texts {
			texts[i] = strings.ReplaceAll(c.Text, "@", string(first+rune(i)))
		}
		got := treat(texts)
		want, ok := c.Blocks[strconv.FormatInt(int64(first), 16)]
		if !ok {
			want = checksum(like(usual, first, count))
		}
		require.Equal(t, want, checksum(got), "the block of U+%04X", first)
	}
}

// like returns parts with U+E000 replaced by the characters from first on, count
// times each.
func like(parts []string, first rune, count int) []string {
	out := make([]string, len(parts))
	seen := 0
	for i, part := range parts {
		out[i] = strings.Map(func(c rune) rune {
			if c != 0xe000 {
				return c
			}
			seen++
			return first + rune((seen-1)/count)
		}, part)
	}
	return out
}

// Every property has the characters of the library's.
func TestProperties(t *testing.T) {
	t.Parallel()
	p := readPoints(t)
	require.Greater(t, len(p.Properties), 300)
	for name, want := range p.Properties {
		spans, ok := ucd.Property(name)
		require.True(t, ok, name)
		require.Equal(t, want, checksum([]string{ranges(spans)}), name)
	}
}

// ranges writes spans without surrogates, which no text has.
func ranges(spans []ucd.Span) string {
	var out []ucd.Span
	for _, s := range spans {
		for _, part := range []ucd.Span{{Lo: s.Lo, Hi: min(s.Hi, 0xd7ff)}, {Lo: max(s.Lo, 0xe000), Hi: s.Hi}} {
			switch n := len(out); {
			case part.Lo > part.Hi:
			case n > 0 && out[n-1].Hi == 0xd7ff && part.Lo == 0xe000:
				out[n-1].Hi = part.Hi
			default:
				out = append(out, part)
			}
		}
	}
	text := make([]string, len(out))
	for i, s := range out {
		text[i] = fmt.Sprintf("%x-%x", s.Lo, s.Hi)
	}
	return strings.Join(text, ",")
}

// draw repeats the generator of points.py.
type draw uint32

func (d *draw) below(n int) int {
	*d = draw((uint64(*d)*1103515245 + 12345) % (1 << 31))
	return int(*d>>8) % n
}

// compositions returns the rows of characters that points.py normalizes.
func compositions(firsts, seconds, marks []rune) map[string][]string {
	all := make(map[string][]string)
	add := func(name string, row ...rune) { all[name] = append(all[name], string(row)) }
	for _, a := range firsts {
		for _, b := range seconds {
			add("pairs", a, b)
		}
	}
	for _, a := range seconds {
		for _, b := range seconds {
			add("orders", a, b)
		}
	}
	for _, a := range "\u0334\u0327\u0323\u0301\u0345\u05b0" {
		for _, b := range marks {
			add("classes", 'a', a, b)
		}
	}
	for a := rune(0xac00); a < 0xd7a4; a += 7 {
		for trail := rune(0x11a7); trail < 0x11c4; trail++ {
			add("syllables", a, trail)
		}
	}
	for lead := rune(0x1100); lead < 0x1114; lead++ {
		for vowel := rune(0x1160); vowel < 0x1177; vowel++ {
			for trail := rune(0x11a7); trail < 0x11c4; trail++ {
				add("leads", lead, vowel, trail)
			}
		}
	}
	d := draw(1)
	rows := func(name string, pool []rune, count, least, more int) {
		for range count {
			row := make([]rune, least+d.below(more))
			for i := range row {
				row[i] = pool[d.below(len(pool))]
			}
			add(name, row...)
		}
	}
	pool := append([]rune(string(firsts)+strings.Repeat(string(seconds), 3)), marks...)
	for c := rune(0x1100); c < 0x1200; c++ {
		pool = append(pool, c)
	}
	for c := rune(0xac00); c < 0xad00; c++ {
		pool = append(pool, c)
	}
	rows("random", append(pool, []rune("aeio ux")...), 20000, 2, 7)
	rows("long", append([]rune(string(seconds)), marks[:200]...), 500, 20, 40)
	return all
}

// Characters compose, and combining marks are ordered, as by the library.
func TestCompositions(t *testing.T) {
	t.Parallel()
	p := readPoints(t)
	all := compositions([]rune(p.Characters.Firsts), []rune(p.Characters.Seconds), []rune(p.Characters.Marks))
	require.Len(t, p.Composed, len(all))
	for name, rows := range all {
		require.Len(t, p.Composed[name], 4)
		for kind, sums := range p.Composed[name] {
			normal, err := newNormalizer(&component{Type: kind})
			require.NoError(t, err)
			require.Len(t, sums, (len(rows)+999)/1000, name)
			for i, want := range sums {
				part := rows[i*1000 : min(i*1000+1000, len(rows))]
				require.Equal(t, want, checksum(applied(normal, part)), "%s of %s from row %d on", kind, name, i*1000)
			}
		}
	}
}

func applied(normal text.Steps, rows []string) []string {
	out := make([]string, len(rows))
	for i, s := range rows {
		out[i] = normal.Apply(budget.New(len(s)), s)
	}
	return out
}

package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

const (
	tokenizerName = "tokenizer.json"
	configName    = "tokenizer_config.json"
	modelName     = "tokenizer.model"
	specialName   = "special_tokens_map.json"
	addedName     = "added_tokens.json"
)

// Load reads the tokenizer of a model's folder: tokenizer.json; or vocab.json
// (encoder.json) with merges.txt (vocab.bpe); or char_ords in
// tokenizer_config.json; or SentencePiece's tokenizer.model. It returns ErrNone
// if the folder has none of them.
func Load(dir string) (*Tokenizer, error) {
	t, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", dir, err)
	}
	return t, nil
}

// folder reads files of a model's folder.
type folder struct {
	dir   string
	names []string // files that exist, in the order of reading
}

// read returns the content and the name of the first of the named files that exists, or nil
// if none does.
func (f *folder) read(names ...string) (data []byte, name string, err error) {
	for _, name := range names {
		data, err := filetype.Read(filepath.Join(f.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, name, err
		}
		f.names = append(f.names, name)
		return data, name, nil
	}
	return nil, "", nil
}

// has reports whether a file exists.
func (f *folder) has(name string) bool {
	info, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil && info.Mode().IsRegular()
}

func load(dir string) (*Tokenizer, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, errors.New("is a file, expected a folder")
	}
	f := &folder{dir: dir}
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	t, err := f.tokenizer(config)
	if err != nil {
		return nil, err
	}
	if err := t.finish(config); err != nil {
		return nil, fmt.Errorf("%s: %w", configName, err)
	}
	if f.has("chat_template.jinja") {
		f.names = append(f.names, "chat_template.jinja")
	}
	t.files = f.names
	return t, nil
}

// config reads tokenizer_config.json, completed by special_tokens_map.json.
func (f *folder) config() (*configFile, error) {
	c := new(configFile)
	for _, name := range []string{specialName, configName} {
		data, _, err := f.read(name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		read, err := parseConfig(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		read.inherit(c)
		c = read
	}
	return c, nil
}

// inherit copies the special tokens that c lacks from other.
func (c *configFile) inherit(other *configFile) {
	for _, pair := range [][2]*tokenName{{&c.BOS, &other.BOS}, {&c.EOS, &other.EOS}, {&c.Pad, &other.Pad},
		{&c.Unk, &other.Unk}} {
		if *pair[0] == "" {
			*pair[0] = *pair[1]
		}
	}
	if c.Additional == nil {
		c.Additional = other.Additional
	}
}

// tokenizer reads the tokenizer's own files, in the order of precedence that Load describes.
// It may complete c with defaults.
func (f *folder) tokenizer(c *configFile) (*Tokenizer, error) {
	data, _, err := f.read(tokenizerName)
	if err != nil {
		return nil, err
	}
	if data != nil {
		t, err := parseFile(data, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", tokenizerName, err)
		}
		return t, nil
	}
	vocab, vocabName, err := f.read("vocab.json", "encoder.json")
	if err != nil {
		return nil, err
	}
	merges, mergesName, err := f.read("merges.txt", "vocab.bpe")
	if err != nil {
		return nil, err
	}
	switch {
	case vocab != nil && merges != nil:
		return f.fromParts(c, part{vocabName, vocab}, part{mergesName, merges})
	case c.Ords != nil:
		t, err := newChars(c.Ords)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", configName, err)
		}
		return t, nil
	case vocab != nil:
		return nil, fmt.Errorf("%w: %s without merges.txt, expected both or tokenizer.json", ErrNone, vocabName)
	}
	if data, _, err = f.read(modelName); err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fmt.Errorf("%w: expected tokenizer.json, vocab.json with merges.txt, %s, or char_ords in %s",
			ErrNone, modelName, configName)
	}
	t, err := fromModel(data, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", modelName, err)
	}
	return t, nil
}

// part is a file that has been read.
type part struct {
	name string
	data []byte
}

// fromParts builds the tokenizer of a vocabulary and its merges. The pattern is that of
// inferPattern.
func (f *folder) fromParts(c *configFile, vocab, merges part) (*Tokenizer, error) {
	b := bpe.Config{}
	if err := json.Unmarshal(vocab.data, &b.Vocab); err != nil {
		err = cmp.Or(filetype.NotJSON(vocab.data), err)
		return nil, fmt.Errorf("%s: expected an object that maps pieces to ids: %w", vocab.name, err)
	}
	var err error
	if b.Merges, err = parseMerges(string(merges.data)); err != nil {
		return nil, fmt.Errorf("%s: %w", merges.name, err)
	}
	if c.EOS == "" {
		if _, ok := b.Vocab["<|endoftext|>"]; ok { // the default of both classes
			c.EOS = "<|endoftext|>"
		}
	}
	legacy, err := f.legacyAdded(c)
	if err != nil {
		return nil, err
	}
	pattern, err := inferPattern(c.Class, b.Vocab)
	if err != nil {
		return nil, err
	}
	find, err := split.Compile(pattern)
	if err != nil {
		return nil, err
	}
	var normal text.Steps
	if pattern == split.Qwen2 {
		normal = text.Steps{text.Form(norm.NFC)}
	}
	if c.AddPrefixSpace {
		b.Split = append(b.Split, split.SpacePrefix{})
	}
	b.Split = append(b.Split, &split.Pattern{Find: find, Behavior: split.Isolated})
	m, err := bpe.New(b)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", vocab.name, merges.name, err)
	}
	added, err := mergeAdded(b.Vocab, legacy, c)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", vocab.name, configName, err)
	}
	return newTokenizer(m, normal, added)
}

// legacyAdded reads added_tokens.json, which has only contents and ids. It returns those of
// its tokens that added_tokens_decoder does not describe, in the order of their ids.
func (f *folder) legacyAdded(c *configFile) ([]addedToken, error) {
	data, _, err := f.read(addedName)
	if err != nil || data == nil {
		return nil, err
	}
	var ids map[string]int32
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("%s: expected an object that maps contents to ids: %w", addedName, err)
	}
	maps.DeleteFunc(ids, func(content string, id int32) bool {
		return c.Added[strconv.Itoa(int(id))].Content == content
	})
	added := make([]addedToken, 0, len(ids))
	for content, id := range ids {
		added = append(added, addedToken{ID: id, Content: content})
	}
	slices.SortFunc(added, func(a, b addedToken) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Content, b.Content))
	})
	return added, nil
}

// parseMerges parses a merges.txt: one "a b" per line, the first merge first, after an
// optional "#version" line.
func parseMerges(text string) ([][2]string, error) {
	var merges [][2]string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || number == 1 && strings.HasPrefix(line, "#version") {
			continue
		}
		pair, ok := parseMerge(line)
		if !ok {
			return nil, fmt.Errorf("line %d %q: expected two pieces separated by one space", number, line)
		}
		merges = append(merges, pair)
	}
	return merges, nil
}

// inferPattern returns the pattern of a tokenizer class. For other classes, it returns the
// pattern that cuts fewer pieces of the vocabulary: training makes no piece that its pattern
// cuts.
func inferPattern(class string, vocab map[string]int32) (string, error) {
	switch {
	case strings.HasPrefix(class, "Qwen2"):
		return split.Qwen2, nil
	case strings.HasPrefix(class, "GPT2"):
		return split.GPT2, nil
	}
	gpt2, err := cutPieces(vocab, split.GPT2)
	if err != nil {
		return "", err
	}
	qwen2, err := cutPieces(vocab, split.Qwen2)
	if gpt2 > qwen2 {
		return split.Qwen2, err
	}
	return split.GPT2, err
}

// cutPieces returns the number of pieces that a pattern splits into several words.
func cutPieces(vocab map[string]int32, pattern string) (int, error) {
	find, err := split.Compile(pattern)
	if err != nil {
		return 0, err
	}
	alpha := bpe.NewAlphabet()
	var matches [][2]int
	cut := 0
	for piece := range vocab {
		text, ok := alpha.Decode(piece)
		if !ok || text == "" {
			continue
		}
		matches, _ = find.Matches(budget.New(len(text)), matches[:0], text, 0, 1)
		if len(matches) == 0 || matches[0] != [2]int{0, len(text)} {
			cut++
		}
	}
	return cut, nil
}

package tokenizer

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
	"github.com/easyrl/easyrl/tokenizer/internal/spm"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

// fromModel builds the tokenizer of a SentencePiece tokenizer.model. Like Hugging Face's
// converters, and unlike SentencePiece, it matches control symbols in the text, as special
// tokens.
func fromModel(data []byte, config *configFile) (*Tokenizer, error) {
	m, err := spm.Parse(data)
	if err != nil {
		return nil, cmp.Or(filetype.Explain(data, "a SentencePiece model", "binary data"), err)
	}
	c := bpe.Config{Chars: true, Fuse: true, Fallback: m.ByteFallback, Vocab: make(map[string]int32, len(m.Pieces)),
		Frozen: make(map[string]int32)}
	var special []addedToken
	var frozen []addedToken // user-defined symbols
	for i, p := range m.Pieces {
		id := int32(i)
		if _, ok := c.Vocab[p.Text]; !ok { // of duplicates, the first counts
			c.Vocab[p.Text] = id
		}
		token := addedToken{ID: id, Content: p.Text, Special: true}
		switch p.Type {
		case spm.Unknown:
			c.Unk = p.Text
			special = append(special, token)
		case spm.Control:
			special = append(special, token)
		case spm.User:
			c.Frozen[p.Text] = id
			frozen = append(frozen, token)
		}
	}
	for _, merge := range m.Merges() {
		c.Merges = append(c.Merges, [2]string{merge.Left, merge.Right})
		c.Ranks = append(c.Ranks, merge.Rank)
	}
	normal, decoder := spaces(m, config, &c)
	if len(frozen) > 0 {
		c.Split = append(c.Split, symbolSplit{frozen: newMatcher(frozen)})
	}
	b, err := bpe.New(c)
	if err != nil {
		return nil, err
	}
	added, err := mergeAdded(c.Vocab, special, config)
	if err != nil {
		return nil, err
	}
	t, err := newTokenizer(b, normal, added)
	if err != nil {
		return nil, err
	}
	t.decoder = decoder
	setEnds(m, config)
	return t, nil
}

// spaces returns the normalizer and the decoder, which handle spaces. If only the first part of a text gets
// a leading space, spaces instead adds a step to c.Split, because the normalizer cannot tell which part is
// the first.
func spaces(m *spm.Model, config *configFile, c *bpe.Config) (text.Steps, text.Decoder) {
	var normal text.Steps
	if m.Squeeze {
		normal = append(normal, text.Squeeze)
	}
	unmark := text.Each(func(_ *budget.Budget, p string) string {
		return strings.ReplaceAll(p, bpe.SpaceMark, " ")
	})
	decoder := text.Decoder{unmark, text.BytePieces, text.Fuse}
	if m.Prefix {
		decoder = append(decoder, text.StripChar(" ", 1, 0))
	}
	if m.Prefix && (config.Legacy == nil || *config.Legacy) {
		normal = append(normal, text.Prepend(" "))
	} else if m.Prefix {
		c.Split = append(c.Split, &split.Metaspace{Replacement: bpe.SpaceMark, Scheme: "first"})
	}
	normal = append(normal, replace(split.Literal(" "), bpe.SpaceMark))
	if m.Squeeze { // the original text may end with marks, which Squeeze does not remove
		normal = append(normal, func(_ *budget.Budget, s string) string {
			for strings.HasSuffix(s, bpe.SpaceMark) {
				s = strings.TrimSuffix(s, bpe.SpaceMark)
			}
			return s
		})
	}
	return normal, decoder
}

// setEnds fills in the bos and eos tokens that config lacks with those of the model, before finish reads
// config.
func setEnds(m *spm.Model, config *configFile) {
	control := func(id int32) string {
		if id < 0 || int(id) >= len(m.Pieces) || m.Pieces[id].Type != spm.Control {
			return ""
		}
		return m.Pieces[id].Text
	}
	if config.EOS == "" {
		config.EOS = tokenName(control(m.EOS))
	}
	if config.BOS == "" {
		config.BOS = tokenName(control(m.BOS))
	}
	if config.AddBOS == nil && config.BOS != "" {
		config.AddBOS = new(true)
	}
}

// symbolSplit splits off the pieces that are never merged.
type symbolSplit struct{ frozen *matcher }

// Split implements split.Step. It splits the entire text at once.
func (s symbolSplit) Split(text string, _ int, to *split.Pieces) int {
	done := 0
	for i := 0; i < len(text); {
		a := s.frozen.longest(text[i:])
		if a == nil {
			_, n := utf8.DecodeRuneInString(text[i:])
			i += n
			continue
		}
		if done < i {
			to.List = append(to.List, text[done:i])
		}
		i += len(a.Content)
		to.List = append(to.List, a.Content)
		done = i
	}
	to.List = append(to.List, text[done:])
	return len(text)
}

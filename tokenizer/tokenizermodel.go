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

// fromModel builds the tokenizer of a SentencePiece tokenizer.model. Its control
// symbols are special tokens that are matched in the text.
func fromModel(data []byte, config *configFile) (*Tokenizer, error) {
	m, err := spm.Parse(data)
	if err != nil {
		return nil, cmp.Or(filetype.Explain(data, "a SentencePiece model", "binary data"), err)
	}
	c := bpe.Config{Chars: true, Fuse: true, Fallback: m.ByteFallback, Vocab: make(map[string]int32, len(m.Pieces)),
		Frozen: make(map[string]int32)}
	var special, frozen []addedToken
	for i, p := range m.Pieces {
		id := int32(i)
		if _, ok := c.Vocab[p.Text]; !ok {
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
		c.Split = append(c.Split, symbols{newMatcher(frozen)})
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
	t.setEnds(m, config)
	return t, nil
}

// spaces returns the steps and the decoder that handle spaces.
func spaces(m *spm.Model, config *configFile, c *bpe.Config) (text.Steps, text.Decoder) {
	var normal text.Steps
	if m.Squeeze {
		normal = append(normal, text.Squeeze)
	}
	decoder := text.Decoder{text.Each(func(_ *budget.Budget,
		p string) string {
		return strings.ReplaceAll(p, bpe.SpaceMark, " ")
	}), text.BytePieces, text.Fuse}
	if m.Prefix {
		decoder = append(decoder, text.StripChar(" ", 1, 0))
	}
	if m.Prefix && (config.Legacy == nil || *config.Legacy) {
		normal = append(normal, text.Prepend(" "))
	} else if m.Prefix {
		c.Split = append(c.Split, &split.Metaspace{Replacement: bpe.SpaceMark, Scheme: "first"})
	}
	normal = append(normal, replace(split.Literal(" "), bpe.SpaceMark))
	if m.Squeeze { // at the end, also marks in the original text
		normal = append(normal, func(_ *budget.Budget, s string) string {
			for strings.HasSuffix(s, bpe.SpaceMark) {
				s = strings.TrimSuffix(s, bpe.SpaceMark)
			}
			return s
		})
	}
	return normal, decoder
}

// setEnds sets the tokens of the beginning and the end that only the model names.
func (t *Tokenizer) setEnds(m *spm.Model, config *configFile) {
	at := func(id int32) string {
		if id < 0 || int(id) >= len(m.Pieces) || m.Pieces[id].Type != spm.Control {
			return ""
		}
		return m.Pieces[id].Text
	}
	if config.EOS == "" {
		config.EOS = tokenName(at(m.EOS))
	}
	if config.BOS == "" {
		config.BOS = tokenName(at(m.BOS))
	}
	if config.AddBOS == nil && config.BOS != "" {
		yes := true
		config.AddBOS = &yes
	}
}

// symbols splits off the pieces that are never merged.
type symbols struct{ *matcher }

// Split implements split.Step.
func (s symbols) Split(text string, _ int, to *split.Pieces) int {
	done := 0
	for i := 0; i < len(text); {
		a := s.at(text[i:])
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

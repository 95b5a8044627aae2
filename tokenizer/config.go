package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
)

// configFile is a tokenizer_config.json, or a special_tokens_map.json, which has a part of the
// same fields.
type configFile struct {
	Ords           []int64 `json:"char_ords"`
	Class          string  `json:"tokenizer_class"`
	AddPrefixSpace bool    `json:"add_prefix_space"`
	AddBOS         *bool   `json:"add_bos_token"`
	// Legacy applies to tokenizer.model: each part of a text between added tokens gets a
	// leading space, not only the first. The default is true.
	Legacy     *bool                 `json:"legacy"`
	BOS        tokenName             `json:"bos_token"`
	EOS        tokenName             `json:"eos_token"`
	Pad        tokenName             `json:"pad_token"`
	Unk        tokenName             `json:"unk_token"`
	Additional []tokenName           `json:"additional_special_tokens"`
	Added      map[string]addedToken `json:"added_tokens_decoder"` // by id, in decimal
}

// tokenName is a token's content, written as a string or as an object.
type tokenName string

func (t *tokenName) UnmarshalJSON(b []byte) error {
	var s *string
	if json.Unmarshal(b, &s) == nil {
		if s != nil {
			*t = tokenName(*s)
		}
		return nil
	}
	var o struct {
		Content *string `json:"content"`
	}
	if err := json.Unmarshal(b, &o); err != nil || o.Content == nil {
		return fmt.Errorf("token %.100s: expected a string, null or an object with content", b)
	}
	*t = tokenName(*o.Content)
	return nil
}

// parseConfig parses a tokenizer_config.json.
func parseConfig(data []byte) (*configFile, error) {
	c := new(configFile)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, cmp.Or(filetype.NotJSON(data), err)
	}
	return c, nil
}

// tokens returns the added tokens that the configuration defines, in the order of their ids.
func (c *configFile) tokens() ([]addedToken, error) {
	added := make([]addedToken, 0, len(c.Added))
	for _, key := range slices.Sorted(maps.Keys(c.Added)) {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("added_tokens_decoder key %q: expected a token id", key)
		}
		a := c.Added[key]
		a.ID = int32(id)
		added = append(added, a)
	}
	slices.SortFunc(added, func(a, b addedToken) int { return int(a.ID) - int(b.ID) })
	return added, nil
}

// mergeAdded returns the added tokens of tokenizer.json (file), followed by those that
// only the configuration has: the tokens of added_tokens_decoder, and the special tokens
// that the configuration names, if they are in the vocabulary.
func mergeAdded(vocab map[string]int32, file []addedToken, c *configFile) ([]addedToken, error) {
	more, err := c.tokens()
	if err != nil {
		return nil, err
	}
	m := addedMerger{vocab: vocab, place: make(map[string]int), owner: make(map[int32]string)}
	for piece, id := range vocab {
		m.owner[id] = piece
	}
	limit := len(vocab) + len(file) + len(more) + bpe.MaxHoles
	for _, a := range append(slices.Clone(file), more...) {
		if a.Content == "" {
			continue
		}
		if a.ID < 0 || int(a.ID) >= limit {
			return nil, fmt.Errorf("added token %q has id %d, expected 0 to %d", a.Content, a.ID, limit-1)
		}
		if err := m.add(a); err != nil {
			return nil, err
		}
	}
	for _, name := range []tokenName{c.BOS, c.EOS, c.Pad} {
		m.addSpecial(name)
		m.makeSpecial(name)
	}
	m.addSpecial(c.Unk)
	for _, name := range c.Additional {
		m.addSpecial(name)
	}
	return m.tokens, nil
}

// addedMerger collects added tokens and checks that contents and ids are unique.
type addedMerger struct {
	vocab  map[string]int32
	owner  map[int32]string // content by id, of added tokens and pieces
	place  map[string]int   // index in tokens by content
	tokens []addedToken
}

// add adds a token unless it is already present.
func (m *addedMerger) add(a addedToken) error {
	if i, ok := m.place[a.Content]; ok {
		if present := m.tokens[i].ID; present != a.ID {
			return fmt.Errorf("added token %q has ids %d and %d, expected one", a.Content, present, a.ID)
		}
		return nil
	}
	if id, ok := m.vocab[a.Content]; ok && id != a.ID {
		return fmt.Errorf("added token %q has id %d, but %d in the vocabulary", a.Content, a.ID, id)
	}
	if owner, ok := m.owner[a.ID]; ok && owner != a.Content {
		return fmt.Errorf("added token %q: id %d belongs to %q", a.Content, a.ID, owner)
	}
	m.owner[a.ID], m.place[a.Content] = a.Content, len(m.tokens)
	m.tokens = append(m.tokens, a)
	return nil
}

// addSpecial adds a piece of the vocabulary as a special token, unless it is already an added
// token.
func (m *addedMerger) addSpecial(name tokenName) {
	if _, ok := m.place[string(name)]; ok {
		return
	}
	if id, ok := m.vocab[string(name)]; ok && name != "" {
		m.place[string(name)] = len(m.tokens)
		m.tokens = append(m.tokens, addedToken{ID: id, Content: string(name), Special: true})
	}
}

// makeSpecial makes an added token special, if there is one of that name.
func (m *addedMerger) makeSpecial(name tokenName) {
	if i, ok := m.place[string(name)]; ok {
		m.tokens[i].Special = true
	}
}

// finish applies the configuration's bos_token, eos_token and add_bos_token.
func (t *Tokenizer) finish(c *configFile) error {
	if c.EOS != "" {
		id, ok := t.TokenID(string(c.EOS))
		if !ok {
			return fmt.Errorf("eos_token %q is not in the vocabulary", c.EOS)
		}
		t.stops = []int32{id}
	}
	if c.AddBOS == nil || c.BOS == "" {
		return nil
	}
	bos, ok := t.TokenID(string(c.BOS))
	switch {
	case *c.AddBOS && !ok:
		return fmt.Errorf("bos_token %q is not in the vocabulary, but add_bos_token is true", c.BOS)
	case *c.AddBOS && !slices.Contains(t.prefix, bos):
		t.prefix = append([]int32{bos}, t.prefix...)
	case !*c.AddBOS && ok && strings.HasPrefix(c.Class, "Llama"): // these classes ignore the post-processor
		t.prefix = slices.DeleteFunc(t.prefix, func(id int32) bool { return id == bos })
	}
	return nil
}

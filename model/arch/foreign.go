package arch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/internal/filetype"
)

// ReadForeign reads the folder of a decoder of any architecture. It returns the number of the
// decoder's parameters and a Config in which only Type, HiddenSize, Layers, VocabSize,
// MaxPositions, StopIDs and BOS are set.
func ReadForeign(dir string) (c *Config, parameters int64, err error) {
	b, err := filetype.Read(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, 0, fmt.Errorf("read model folder: %w", err)
	}
	if c, err = parseForeign(b); err != nil {
		return nil, 0, inFile(filepath.Join(dir, "config.json"), err)
	}
	if err := c.readStops(dir); err != nil {
		return nil, 0, err
	}
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		parameters += int64(t.Len())
	}
	return c, parameters, nil
}

// foreignConfig holds the fields that the config.json of every decoder has. A multimodal model
// has those of its decoder in text_config.
type foreignConfig struct {
	ModelType    string          `json:"model_type"`
	HiddenSize   int             `json:"hidden_size"`
	Layers       int             `json:"num_hidden_layers"`
	VocabSize    int             `json:"vocab_size"`
	MaxPositions int             `json:"max_position_embeddings"`
	EOS          tokenIDs        `json:"eos_token_id"`
	BOS          *int32          `json:"bos_token_id"`
	Text         json.RawMessage `json:"text_config"`
}

// foreignPositions is the context of a decoder whose config.json does not state one.
const foreignPositions = 4096

// parseForeign parses the config.json of any decoder.
func parseForeign(b []byte) (*Config, error) {
	var h foreignConfig
	err := unmarshal(b, &h)
	if err == nil && h.Text != nil { // the decoder's fields override those of the whole model, except its type
		modelType := h.ModelType
		err = unmarshal(h.Text, &h)
		h.ModelType = modelType
	}
	if err != nil {
		return nil, err
	}
	c := &Config{Type: h.ModelType, HiddenSize: h.HiddenSize, Layers: h.Layers, VocabSize: h.VocabSize,
		MaxPositions: cmp.Or(h.MaxPositions, foreignPositions), StopIDs: h.EOS, BOS: -1}
	if h.BOS != nil {
		c.BOS = *h.BOS
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"hidden_size", c.HiddenSize}, {"num_hidden_layers", c.Layers}, {"vocab_size", c.VocabSize},
		{"max_position_embeddings", c.MaxPositions}} {
		if f.v < 1 || f.v > maxSize {
			return nil, fmt.Errorf("%s is %d, expected 1 to %d", f.name, f.v, maxSize)
		}
	}
	return c, c.checkStops(c.StopIDs)
}

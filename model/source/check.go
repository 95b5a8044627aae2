package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/model/tensor"
)

// Check checks that a model folder's safetensors fit the shape c, without
// reading or allocating values. The error names the first tensor that is missing, has
// another shape or type, or belongs to a decoder that computes something else.
func Check(c *arch.Config, dir string) error {
	f, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	for _, p := range c.Params() {
		t, err := p.Find("", f)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if err := t.ReadAt(nil, 0); err != nil { // reads nothing, but checks the type
			return fmt.Errorf("%s: load weights: %w", dir, err)
		}
	}
	if err := CheckOthers(c, f); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// CheckOthers rejects tensors that this shape lacks but that take part in a decoder's
// computation: further layers, biases, norms. It ignores tensors outside the decoder,
// such as a value head, and the rotary frequencies in older files, which follow from
// config.json. CheckHead handles an output projection beside tied embeddings.
func CheckOthers(c *arch.Config, f *checkpoint.WeightFiles) error {
	known := make(map[string]struct{})
	for _, p := range c.Params() {
		known[p.Name] = struct{}{}
	}
	for _, name := range f.Names() {
		_, ok := known[name]
		ours := strings.HasPrefix(name, "model.") || strings.HasPrefix(name, "lm_head.")
		if ok || !ours || strings.HasSuffix(name, ".rotary_emb.inv_freq") || name == arch.HeadName && c.Tied {
			continue
		}
		var layer int
		if n, _ := fmt.Sscanf(name, "model.layers.%d.", &layer); n == 1 && layer >= c.Layers {
			return fmt.Errorf("load weights: tensor %s belongs to layer %d, but num_hidden_layers is %d", name,
				layer+1, c.Layers)
		}
		return fmt.Errorf("load weights: tensor %s is not part of the %s decoder in config.json", name, c.Type)
	}
	return nil
}

// CheckHead rejects an output projection that differs from the embedding that
// config.json ties it to. Published folders contain equal copies.
func CheckHead(c *arch.Config, f *checkpoint.WeightFiles) error {
	head, ok := f.Tensor(arch.HeadName)
	if !ok || !c.Tied {
		return nil
	}
	p := tensor.Param{Name: arch.HeadName, Rows: c.VocabSize, Cols: c.HiddenSize}
	if _, err := p.Find("", f); err != nil {
		return err
	}
	embed, _ := f.Tensor(c.Params()[0].Name)
	total := p.Rows * p.Cols
	step := min(tensor.BlockValues, total)
	a, b := make([]float32, step), make([]float32, step)
	for first := 0; first < total; first += step {
		n := min(step, total-first)
		if err := errors.Join(head.ReadAt(a[:n], first), embed.ReadAt(b[:n], first)); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		if !slices.Equal(a[:n], b[:n]) {
			return fmt.Errorf("load weights: tensor %s differs from the embedding, but config.json ties them. Set "+
				"tie_word_embeddings to false", arch.HeadName)
		}
	}
	return nil
}

package arch

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// Range is a half-open range of indices.
type Range = layer.Range

// Part is the part of a decoder that a rank holds. Each sublayer says how tensor ranks divide it. They divide the
// embedding and the output projection by tokens, at multiples of npu.MatrixBlock (see layer.Blocks).
type Part struct {
	Whole   *Config // shape of the complete decoder
	Mesh    parallel.Mesh
	At      parallel.Coord // the rank's place in Mesh
	Layers  Range          // this pipeline stage's layers
	Heads   Range          // this tensor rank's query heads
	KVHeads Range          // this tensor rank's key-value heads
	FFN     Range          // this tensor rank's part of the feed-forward size
	Vocab   Range          // this tensor rank's tokens
	// Sequence divides the rows of the residual stream and of its norms among the tensor ranks
	// (Korthikanti et al. 2022).
	Sequence bool
}

// First reports whether the stage embeds tokens.
func (p *Part) First() bool { return p.At.PP == 0 }

// Last reports whether the stage computes log-probabilities.
func (p *Part) Last() bool { return p.At.PP == p.Mesh.PP-1 }

// Shard returns the shape of the part of c, a complete decoder, that the rank of a mesh at a coordinate holds, with
// sequence parallelism if sequence is set. If the mesh cannot divide c, it returns the error of CheckMesh.
func (c *Config) Shard(m parallel.Mesh, at parallel.Coord, sequence bool) (*Config, error) {
	if err := c.CheckMesh(m); err != nil {
		return nil, err
	}
	attention, mlp := c.attention().Divide(m.TP, at.TP, false), c.mlp().Divide(m.TP, at.TP, false)
	group := c.Heads / c.KVHeads // query heads of a key-value head
	p := &Part{Whole: c, Mesh: m, At: at, Layers: c.stage(m.PP, at.PP), KVHeads: attention.Part, FFN: mlp.Part,
		Heads: Range{From: attention.Part.From * group, To: attention.Part.To * group},
		Vocab: layer.Blocks(c.VocabSize, m.TP, at.TP), Sequence: sequence && m.TP > 1}
	local := *c
	local.part = p
	local.Layers = p.Layers.Len()
	local.Heads = p.Heads.Len()
	local.KVHeads = p.KVHeads.Len()
	local.FFNSize = p.FFN.Len()
	local.VocabSize = p.Vocab.Len()
	return &local, nil
}

// CheckMesh returns an error with all reasons why a mesh cannot divide c, or nil if it can.
func (c *Config) CheckMesh(m parallel.Mesh) error {
	errs := []error{m.Validate()}
	if errs[0] != nil {
		return errs[0]
	}
	limit := func(axis string, n, maxRanks int, what string) {
		if n > maxRanks {
			errs = append(errs, fmt.Errorf("%s is %d, expected at most %d, the number of %s", axis, n, maxRanks, what))
		}
	}
	limit("pp", m.PP, c.Layers, "layers")
	for _, s := range c.Block() {
		n, what := s.MaxRanks()
		limit("tp", m.TP, n, what)
	}
	limit("tp", m.TP, layer.NumBlocks(c.VocabSize),
		fmt.Sprintf("blocks of %d in the vocabulary of %d", npu.MatrixBlock, c.VocabSize))
	return errors.Join(errs...)
}

// Part returns the part that c describes, nil for a complete decoder.
func (c *Config) Part() *Part { return c.part }

// Whole returns the shape of the complete decoder that c describes a part of, or c itself.
func (c *Config) Whole() *Config {
	if c.part == nil {
		return c
	}
	return c.part.Whole
}

// First reports whether c embeds tokens.
func (c *Config) First() bool { return c.part == nil || c.part.First() }

// Last reports whether c computes log-probabilities.
func (c *Config) Last() bool { return c.part == nil || c.part.Last() }

// TiedStages reports whether the first and the last stage both hold p, the tied embedding. The gradient
// of p is then the sum of theirs.
func (c *Config) TiedStages(p *tensor.Param) bool {
	return c.part != nil && c.part.Whole.Tied && c.part.Mesh.PP > 1 && p.Name == EmbedName
}

// VocabStarts returns the first token of each tensor rank, then the size of the vocabulary.
func (p *Part) VocabStarts() []int32 {
	var starts []int32
	for i := range p.Mesh.TP {
		starts = append(starts, int32(layer.Blocks(p.Whole.VocabSize, p.Mesh.TP, i).From))
	}
	return append(starts, int32(p.Whole.VocabSize))
}

// stage returns the layers of a pipeline stage. The division makes the slowest stage as fast as
// possible. The last stage also has the output projection, whose cost is that of one target for each
// row.
func (c *Config) stage(stages, stage int) Range {
	if stages == 1 {
		return Range{From: 0, To: c.Layers}
	}
	head, one := c.Head().FLOPs(1), c.layerFLOPs(1, 0) // operations per row of the output projection, and of a layer
	best, last := 0.0, 0                               // slowest stage's cost, last stage's layers
	for n := 1; n <= c.Layers-(stages-1); n++ {
		others := (c.Layers - n + stages - 2) / (stages - 1) // layers of the largest other stage
		cost := max(float64(float64(n)*one)+head, float64(others)*one)
		if last == 0 || cost <= best {
			best, last = cost, n
		}
	}
	if stage == stages-1 {
		return Range{From: c.Layers - last, To: c.Layers}
	}
	return layer.Even(c.Layers-last, stages-1, stage)
}

package arch

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// Range is a half-open range of indices.
type Range struct{ From, To int }

// Len returns the number of indices.
func (r Range) Len() int { return r.To - r.From }

// Part is the part of a decoder that a rank holds. Matrices whose output is divided (q, k, v, gate,
// up, embedding, output projection) hold some rows, and those whose input is divided (o, down)
// some columns. A rank holds all heads of a query group, so tensor ranks need no keys or values
// of each other. FFN and Vocab start at multiples of npu.MatrixBlock, where the kernels' orders of
// reduction can be cut.
type Part struct {
	Whole   *Config
	Mesh    parallel.Mesh
	At      parallel.Coord
	Layers  Range // of the pipeline stage
	Heads   Range // this tensor rank's query heads
	KVHeads Range // its key-value heads
	FFN     Range // its part of the feed-forward size
	Vocab   Range // its tokens
	// Sequence divides the rows of the residual stream and of its norms among the tensor ranks
	// (Korthikanti et al. 2022).
	Sequence bool
}

// First reports whether the stage embeds tokens.
func (p *Part) First() bool { return p.At.PP == 0 }

// Last reports whether the stage computes log-probabilities.
func (p *Part) Last() bool { return p.At.PP == p.Mesh.PP-1 }

// Shard returns the shape of the part of c that a rank of a mesh holds, with sequence parallelism if
// sequence is set. Its error says why a mesh cannot divide c.
func (c *Config) Shard(m parallel.Mesh, at parallel.Coord, sequence bool) (*Config, error) {
	if err := c.CheckMesh(m); err != nil {
		return nil, err
	}
	p := &Part{Whole: c, Mesh: m, At: at, Layers: c.stage(m.PP, at.PP), KVHeads: even(c.KVHeads, m.TP, at.TP),
		FFN: blocks(c.FFNSize, m.TP, at.TP), Vocab: blocks(c.VocabSize, m.TP, at.TP), Sequence: sequence && m.TP > 1}
	group := c.Heads / c.KVHeads
	p.Heads = Range{p.KVHeads.From * group, p.KVHeads.To * group}
	local := *c
	local.part, local.Layers, local.Heads, local.KVHeads = p, p.Layers.Len(), p.Heads.Len(), p.KVHeads.Len()
	local.FFNSize, local.VocabSize = p.FFN.Len(), p.Vocab.Len()
	return &local, nil
}

// CheckMesh reports all reasons why a mesh cannot divide c.
func (c *Config) CheckMesh(m parallel.Mesh) error {
	errs := []error{m.Validate()}
	if errs[0] != nil {
		return errs[0]
	}
	limit := func(axis string, n, most int, of string) {
		if n > most {
			errs = append(errs, fmt.Errorf("%s is %d, expected at most %d, the number of %s", axis, n, most, of))
		}
	}
	limit("pp", m.PP, c.Layers, "layers")
	limit("tp", m.TP, c.KVHeads, "key-value heads (a rank holds all queries of a key-value head)")
	limit("tp", m.TP, numBlocks(c.FFNSize),
		fmt.Sprintf("blocks of %d in the feed-forward size %d", npu.MatrixBlock, c.FFNSize))
	limit("tp", m.TP, numBlocks(c.VocabSize),
		fmt.Sprintf("blocks of %d in the vocabulary of %d", npu.MatrixBlock, c.VocabSize))
	return errors.Join(errs...)
}

// Part returns the part that c is, nil for a whole decoder.
func (c *Config) Part() *Part { return c.part }

// Whole returns the shape of the decoder that c is a part of, c itself for a whole one.
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

// TiedStages reports whether the first and the last stage both hold p. Its gradient in the whole
// decoder is the sum of theirs.
func (c *Config) TiedStages(p *tensor.Param) bool {
	return c.part != nil && c.part.Whole.Tied && c.part.Mesh.PP > 1 && p.Name == EmbedName
}

// VocabStarts returns the first token of each tensor rank, and after them the size of the vocabulary.
func (p *Part) VocabStarts() []int32 {
	var starts []int32
	for i := range p.Mesh.TP {
		starts = append(starts, int32(blocks(p.Whole.VocabSize, p.Mesh.TP, i).From))
	}
	return append(starts, int32(p.Whole.VocabSize))
}

// MaxVocabShard returns the size of the largest vocabulary shard.
func (c *Config) MaxVocabShard() int {
	if c.part == nil {
		return c.VocabSize
	}
	return blocks(c.part.Whole.VocabSize, c.part.Mesh.TP, 0).Len()
}

// stage returns the layers of a pipeline stage. The slowest stage is as fast as possible, with
// the output projection counted at the last one as if each row had a target.
func (c *Config) stage(stages, stage int) Range {
	if stages == 1 {
		return Range{0, c.Layers}
	}
	one := *c
	one.Layers = 1
	head := float64(2 * float64(c.HiddenSize) * float64(c.VocabSize))
	layer := one.FLOPs(1, 1, 0) - head
	best, last := 0.0, 0
	for n := 1; n <= c.Layers-(stages-1); n++ { // layers of the last stage
		others := (c.Layers - n + stages - 2) / (stages - 1)
		if cost := max(float64(float64(n)*layer)+head, float64(others)*layer); last == 0 || cost <= best {
			best, last = cost, n
		}
	}
	if stage == stages-1 {
		return Range{c.Layers - last, c.Layers}
	}
	return even(c.Layers-last, stages-1, stage)
}

// even returns the i-th of n ranges of count indices, as even as possible, larger ones first.
func even(count, n, i int) Range {
	each, more := count/n, count%n
	at := func(i int) int { return i*each + min(i, more) }
	return Range{at(i), at(i + 1)}
}

// blocks is even for whole blocks of npu.MatrixBlock indices; the last block may be shorter.
func blocks(count, n, i int) Range {
	r := even(numBlocks(count), n, i)
	return Range{r.From * npu.MatrixBlock, min(count, r.To*npu.MatrixBlock)}
}

func numBlocks(count int) int { return (count + npu.MatrixBlock - 1) / npu.MatrixBlock }

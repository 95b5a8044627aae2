package layout

import (
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/parallel"
)

// Traffic is what a rank sends to others, in bytes. It leaves out the trainer's commands, layouts
// and derivatives, and what ranks tell each other of their schedule and of norms.
type Traffic struct {
	Tensor   int64 `json:"tp"`      // partial sums, embeddings, the head, gradients of norms
	Pipeline int64 `json:"pp"`      // activations and their gradients, the gradient of a tied embedding
	Data     int64 `json:"dp"`      // gradients
	Publish  int64 `json:"publish"` // weights to rank 0; within a process they are copied
}

// Pass counts what the models compute for a step, or a micro-batch: rows of the policy and its
// targets, and those of passes of the reference and the old policy.
type Pass struct {
	Rows, Targets           int
	OtherRows, OtherTargets int
	Recompute               bool // train.recompute
	Reduce                  bool // parallel.reduce = "sum"
	Zero                    int  // parallel.zero
	MicroBatches            int  // into which the rows are cut
}

// Step returns what a rank that holds the part c sends in a step with p on its replica and some
// optimizer updates. It publishes once if the run samples.
func Step(c *model.Config, p Pass, updates int, publishes bool) Traffic {
	t := Micro(c, p)
	u := Update(c, p.Zero)
	t.Tensor += int64(updates) * u.Tensor
	t.Pipeline += int64(updates) * u.Pipeline
	t.Data += int64(updates) * u.Data
	if publishes {
		t.Publish = Publish(c)
	}
	return t
}

// Micro returns what a rank that holds the part c sends for the passes over a micro-batch.
func Micro(c *model.Config, p Pass) (t Traffic) {
	part := c.Part()
	width, forward := 4*int64(c.HiddenSize), int64(p.Rows+p.OtherRows)
	if part.Mesh.TP > 1 {
		t.Tensor = tensorPasses(c, p)
	}
	if !c.Last() {
		t.Pipeline += forward * width
	}
	if !c.First() {
		t.Pipeline += int64(p.Rows) * width
	}
	if part.Sequence { // a rank has a part of the rows between stages
		t.Pipeline /= int64(part.Mesh.TP)
	}
	if n := part.Mesh.DP; p.Zero > 1 && n > 1 { // sums of layers go to their owners
		t.Data += int64(p.MicroBatches) * 8 * int64(layers(c)) * int64(n-1) / int64(n)
		t.Tensor += int64(p.MicroBatches) * summed(c, true)
	}
	return t
}

// summed returns what a tensor rank sends to sum gradients that ranks share, without marks: those of
// layers or the others.
func summed(c *model.Config, layers bool) (bytes int64) {
	at, n := c.Part().At.TP, c.Part().Mesh.TP
	params := c.Params()
	for i := range params {
		if p := &params[i]; n > 1 && p.Whole.Share == tensor.Summed && (p.Layer >= 0) == layers {
			bytes += allReduce(at, n, values(p), 8)
		}
	}
	return bytes
}

// layers returns the number of values in layers.
func layers(c *model.Config) (n int) {
	params := c.Params()
	for i := range params {
		if params[i].Layer >= 0 {
			n += values(&params[i])
		}
	}
	return n
}

// foldWidth is the number of values of a target that the head hands on: see
// npu.Device.SoftmaxFold.
const foldWidth = 33

// tensorPasses returns what a tensor rank sends for passes. model/carry hands a sum on for the
// output of attention and of the feed-forward, and for the gradients of their inputs.
func tensorPasses(c *model.Config, p Pass) int64 {
	at, n := c.Part().At.TP, c.Part().Mesh.TP
	width, rows := 4*int64(c.HiddenSize), int64(p.Rows)
	forward := rows + int64(p.OtherRows)
	sums := 2 * int64(c.Layers) * (forward + rows)
	if p.Recompute {
		sums += 2 * int64(c.Layers-1) * rows
	}
	sent := handOns(at, n) * sums * width
	if c.Part().Sequence {
		sent = width * sequencePasses(c, p)
	}
	if c.First() { // all rows but those of the next rank; as many for each rank on average
		sent += forward * width * int64(n-1) / int64(n)
	}
	if c.Last() {
		sent += allReduce(at, n, p.Targets, 4) + allReduce(at, n, p.OtherTargets, 4) // largest logits
		sent += handOns(at, n) * (4*foldWidth*int64(p.Targets+p.OtherTargets) + int64(p.Targets)*width)
	}
	return sent
}

// sequencePasses returns the rows that a tensor rank sends with sequence parallelism, if each has as
// many: starts of sums to rank 0, sums to the next rank, and from the last rank to their owners;
// before each product it gathers the rows of its input, forward of norms and backward also of
// gradients. It also gathers the input of the head and the gradient of the embedding's output. With
// Reduce it sends a whole sum as without sequence parallelism.
func sequencePasses(c *model.Config, p Pass) int64 {
	at, n := c.Part().At.TP, int64(c.Part().Mesh.TP)
	rows, forward := int64(p.Rows), int64(p.Rows+p.OtherRows)
	again := int64(0)
	if p.Recompute {
		again = rows * int64(c.Layers-1) / int64(max(1, c.Layers))
	}
	on := n // in parts of n: what it sends of a sum
	if int64(at) == n-1 {
		on = n - 1
	}
	start := int64(0)
	if at > 0 {
		start = 1
	}
	if p.Reduce {
		on, start = n*handOns(at, int(n)), 0
	}
	gathers := n - 1
	all := int64(c.Layers) * (2*(forward+again)*(start+on+gathers) + 2*rows*(on+2*gathers))
	if c.Last() {
		all += int64(p.Targets+p.OtherTargets) * gathers
	}
	if c.First() {
		all += rows * gathers
	}
	return all / n
}

// handOns returns how often a rank of n sends a sum: on to the next rank, and, when the sum comes
// around, to the next one that lacks it.
func handOns(rank, n int) int64 {
	if rank < n-2 {
		return 2
	}
	return 1
}

// allReduce returns what a rank of n sends in an all-reduce of count values of some bytes.
func allReduce(rank, n, count, size int) int64 {
	share := func(i int) int { // of rank i
		i %= n
		return (i+1)*(count/n) + min(i+1, count%n) - i*(count/n) - min(i, count%n)
	}
	return int64(size) * int64(2*count-share(rank)-share(rank+1))
}

// Update returns what a rank that holds the part c sends for an optimizer update: 64-bit sums of
// gradients, without padding, and the weights that replicas update for each other.
func Update(c *model.Config, zero int) (t Traffic) {
	part := c.Part()
	params := c.Params()
	t.Tensor = summed(c, false)
	if zero < 2 || part.Mesh.DP == 1 { // else Micro has them
		t.Tensor += summed(c, true)
	}
	for i := range params {
		p := &params[i]
		count := values(p)
		if part.Mesh.TP > 1 && p.Whole.Share == tensor.Summed {
			t.Tensor += allReduce(part.At.TP, part.Mesh.TP, 1, 4) // its mark
		}
		if c.TiedStages(p) {
			rank := 0 // of two
			if c.Last() {
				rank = 1
			}
			t.Pipeline += allReduce(rank, 2, count, 8) + allReduce(rank, 2, 1, 4)
		}
	}
	if n := part.Mesh.DP; n > 1 {
		all, at := int(c.NumParams()), part.At.DP
		t.Data = allReduce(at, n, len(params), 8)
		share := func(values, size int) int64 { return int64(size) * int64(values) * int64(n-1) / int64(n) }
		switch zero {
		case 0:
			t.Data += allReduce(at, n, all, 8)
		case 1:
			t.Data += share(all, 8) + share(all, 4)
		default:
			t.Data += allReduce(at, n, all-layers(c), 8) + share(all, 4)
		}
	}
	return t
}

// Publish returns what a rank that holds the part c sends to rank 0 when a version is published.
func Publish(c *model.Config) (bytes int64) {
	at := c.Part().At
	if at.DP > 0 || at == (parallel.Coord{}) {
		return 0
	}
	params := c.Params()
	for i := range params {
		p := &params[i]
		if (at.TP == 0 || p.Whole.Share == tensor.Divided) && (c.First() || !c.TiedStages(p)) {
			bytes += 4 * int64(values(p))
		}
	}
	return bytes
}

// values returns the number of values of a tensor.
func values(p *tensor.Param) int { return p.Rows * max(p.Cols, 1) }

package roofline

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Sizes of the measured work. A model with a short context gets shorter prompts and responses.
const (
	contextTokens  = 256 // tokens of the prompt for prefill and decode
	promptTokens   = 64  // tokens of the prompt for training
	responses      = 8
	responseTokens = 56
)

// batches returns the numbers of sequences decoded at once.
func batches() []int { return []int{1, 8, 32, 128} }

// sampled is the number of sequences that the sample phase draws tokens for.
const sampled = 32

// Floating-point operations per value, as in npu/csrc.
const (
	drawFLOP  = 24 // of a logit: scale, maximum, exp (18), sums
	adamwFLOP = 18 // of a weight: its gradient's square, moments, update
)

// all times all phases with w and frees it. Sampling comes first because it takes
// less memory.
func (b *measurement) all(w *model.Weights) error {
	if err := b.sampling(w); err != nil {
		w.Free()
		return err
	}
	models, err := trimodel.New(b.dev, w,
		trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1, Optim: optim.Default(),
			Format: optim.FixedPoint(1e6, 1e3)})
	if err != nil {
		return err
	}
	defer models.Close()
	return b.training(models)
}

// tokens draws n token IDs.
func (b *measurement) tokens(rng *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(b.shape.VocabSize))
	}
	return ids
}

// sampling times the prefill of a prompt, the decoding of sequences with that prompt
// in their cache, and the draw of tokens.
func (b *measurement) sampling(w *model.Weights) error {
	c := b.shape
	largest := batches()[len(batches())-1]
	length := min(contextTokens, c.MaxPositions-1)
	pages := length/npu.PageSize + 1 // per sequence, including its next token
	run, err := model.NewRunner(b.dev, c, max(length, largest))
	if err != nil {
		return err
	}
	defer run.Close()
	kv, err := cache.New(b.dev, c.Cache(largest*pages, largest, length+1))
	if err != nil {
		return err
	}
	defer kv.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	prompt := model.Chunk{Tokens: b.tokens(rng, length)}
	for page := range int32(pages) {
		prompt.Pages = append(prompt.Pages, page)
	}
	weights := 4 * float64(c.NumParams())                                // bytes
	position := float64(c.Cache(1, 0, 0).Bytes(npu.FP32)) / npu.PageSize // bytes of the cache per token
	err = b.time(phase{name: "prefill", rows: length, flop: c.FLOPs(length, 1, int64(length)*int64(length+1)/2),
		read: weights, write: float64(length) * position, run: func() error {
			_, err := run.Prefill(w, kv, []model.Chunk{prompt}, []int32{int32(length) - 1})
			return synced(b.dev, err)
		}})
	if err != nil {
		return err
	}
	for page := pages; page < largest*pages; page++ {
		kv.CopyPage(int32(page), int32(page%pages))
	}
	ids := b.tokens(rng, largest)
	var rows []model.Row
	for i := range largest {
		for j := range pages {
			kv.SetPages(int32(i), j, []int32{int32(i*pages + j)})
		}
		rows = append(rows, model.Row{Sequence: int32(i), ID: ids[i], Position: int32(length),
			Slot: int32(i*pages*npu.PageSize + length)})
	}
	var logits npu.Buffer
	// Zero parameters take the likeliest token.
	params, sampledIDs, logp := make([]npu.SampleParams, largest), make([]int32, largest), make([]float32, largest)
	for _, n := range batches() {
		err := b.time(phase{name: fmt.Sprint("decode ", n), rows: n, flop: c.FLOPs(n, n, int64(n)*int64(length+1)),
			read: weights + float64(n*length)*position, write: float64(n)*position + 4*float64(n*c.VocabSize),
			run: func() (err error) {
				logits, err = run.Step(w, kv, rows[:n], params[:n], sampledIDs[:n], logp[:n])
				return err
			}})
		if err != nil {
			return err
		}
	}
	return b.draw(run, ids[:sampled], logits, rng)
}

// draw times sampling one token per row of logits.
func (b *measurement) draw(run *model.Runner, ids []int32, logits npu.Buffer, rng *rand.Rand) error {
	n, vocab := len(ids), b.shape.VocabSize
	params, logp := make([]npu.SampleParams, n), make([]float32, n)
	for i := range params {
		params[i] = npu.SampleParams{Temperature: 1, TopP: 1, Uniform: rng.Float32()}
	}
	return b.time(phase{name: fmt.Sprint("sample ", n), rows: n, flop: drawFLOP * float64(n*vocab),
		read: 4 * float64(n*vocab), run: func() error {
			return run.Sample(ids, logp, logits.Slice(0, n*vocab), params)
		}})
}

// synced waits for the device unless err is already set.
func synced(dev npu.Device, err error) error {
	if err != nil {
		return err
	}
	return dev.Sync()
}

// training times one micro-batch, a prompt with a group of responses, and one
// optimizer step.
func (b *measurement) training(models *trimodel.Models) error {
	c := b.shape
	rng := rand.New(rand.NewPCG(1, 2))
	prompt := min(promptTokens, c.MaxPositions/2)
	var l attention.Layout
	root := l.Add(-1, b.tokens(rng, prompt), false)
	for range responses {
		l.AddResponse(root, b.tokens(rng, min(responseTokens, c.MaxPositions-prompt)))
	}
	objective, err := loss.New(loss.Default())
	if err != nil {
		return err
	}
	n := len(l.Targets)
	advantage, weight := make([]float32, n), make([]float32, n)
	for i := range n {
		advantage[i], weight[i] = float32(i%3)-1, 1
	}
	var out backend.Outputs
	var result loss.Result
	number := 0 // of the last update
	forward := func() (err error) {
		out, err = models.Forward(&l, 0)
		return err
	}
	weights := 4 * float64(c.NumParams()) // bytes, as are activations and vector
	activations := float64(model.ActivationBytes(c, npu.FP32, l.Rows(), l.Rows(), n, false))
	vector := 4 * float64(n)     // one value per target
	flop := c.TrainFLOPs(&l) / 3 // operations of the forward pass, half those of the backward pass
	return b.time(
		phase{name: "forward", rows: l.Rows(), flop: flop, read: weights, write: activations, run: forward},
		phase{name: "loss", rows: n, read: 4 * vector, write: vector, run: func() (err error) {
			result, err = objective.Eval(
				loss.Vars{Policy: out.Values[backend.Policy], Old: out.Values[backend.OldPolicy],
					Advantage: advantage, Weight: weight})
			return err
		}},
		phase{name: "backward", rows: l.Rows(), flop: 2 * flop, read: weights + activations + weights, write: weights,
			set:    2*weights + activations,
			before: forward, run: func() error {
				return synced(b.dev, models.Backward(backend.Values{backend.Policy: result.Grad}))
			}},
		// The norm reads the gradients; AdamW reads weights, gradients and both
		// moments and writes all but the gradients, which are then cleared.
		phase{name: "optimizer", flop: adamwFLOP * float64(c.NumParams()), read: 5 * weights, write: 4 * weights,
			set: 4 * weights, run: func() error {
				number++
				_, err := models.Step(context.Background(),
					backend.Update{Number: number, Scale: 1 / float64(n), LR: 1e-6, Clip: 1})
				return synced(b.dev, err)
			}})
}

package engine

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/attention/cache"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
)

// forward is a model and its cache, as the scheduler uses them.
type forward interface {
	// use makes w the weights of all later calls.
	use(w inference.Weights) error
	// prefill runs chunks of different sequences in one pass, like model.Runner.Prefill. It returns the logits of the
	// rows in want, vocab values each, valid until the next prefill or step.
	prefill(chunks []model.Chunk, want []int32) (npu.Buffer, error)
	// setPages sets the pages of a sequence from number first on, for later steps. sequence is a lane.
	setPages(sequence int32, first int, pages []int32)
	// step runs one token of each sequence and samples the next, like model.Runner.Step.
	step(rows []model.Row, params []npu.SampleParams, ids []int32, logp []float32) (npu.Buffer, error)
	// score sets logp[i] to the log-probability of token targets[i] after row rows[i] of the last
	// prefill or step. It is bitwise equal to that of sample at the same temperature.
	score(logp []float32, rows, targets []int32, temperature float32) error
	// logitsOf writes the logits after the given rows of the last prefill or step to dst.
	logitsOf(dst []float32, rows []int32) error
	// download copies src to host memory.
	download(dst []float32, src npu.Buffer) error
	// copyPage copies the keys and values of a page of the cache.
	copyPage(dst, src int32)
	// sample draws from logits, like npu.Device.Sample.
	sample(ids []int32, logp []float32, logits npu.Buffer, params []npu.SampleParams) error
	// allocate allocates the cache and the activations unless they are allocated.
	allocate() error
	// release frees the cache and the activations. No sequence may have pages.
	release() error
	// close frees everything, including the device.
	close() error
}

// runner implements forward with a decoder and its cache on a device. release frees the decoder and the
// cache.
type runner struct {
	dev     npu.Device
	cfg     *model.Config
	rows    int // maximum number of rows of a pass
	shape   cache.Shape
	run     *model.Runner  // nil while released
	cache   *cache.Cache   // nil while released
	weights *model.Weights // current weights, which the publisher owns
}

func newRunner(dev npu.Device, mc *model.Config, cfg *Config) (*runner, error) {
	r := &runner{dev: dev, cfg: mc, rows: cfg.Rows(mc.MaxPositions), shape: cfg.Cache(mc)}
	if cfg.Released {
		return r, nil
	}
	return r, r.allocate()
}

func (r *runner) allocate() error {
	if r.run != nil {
		return nil
	}
	run, err := model.NewRunner(r.dev, r.cfg, r.rows)
	if err != nil {
		return err
	}
	if r.cache, err = cache.New(r.dev, r.shape); err != nil {
		run.Close()
		return errors.Join(err, r.dev.Sync()) // frees the memory for other queues
	}
	r.run = run
	return nil
}

func (r *runner) release() error {
	if r.run == nil {
		return nil
	}
	r.run.Close()
	r.cache.Close()
	r.run, r.cache = nil, nil
	return r.dev.Sync() // frees the memory for other queues
}

func (r *runner) use(w inference.Weights) error {
	s, ok := w.(interface{ Weights() *model.Weights })
	if !ok {
		return fmt.Errorf("weights are %T, expected *model.Snapshot", w)
	}
	if got, want := shapeOf(s.Weights().Config), shapeOf(r.cfg); got != want {
		return fmt.Errorf("weights have shape %+v, expected %+v", got, want)
	}
	r.weights = s.Weights()
	return nil
}

// shape has the fields of a configuration on which weights and a runner must agree.
type shape struct {
	Type                                                            string
	HiddenSize, FFNSize, Layers, Heads, KVHeads, HeadDim, VocabSize int
}

// shapeOf returns the shape of c.
func shapeOf(c *model.Config) shape {
	return shape{c.Type, c.HiddenSize, c.FFNSize, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.VocabSize}
}

func (r *runner) prefill(chunks []model.Chunk, want []int32) (npu.Buffer, error) {
	logits, err := r.run.Prefill(r.weights, r.cache, chunks, want)
	if err != nil {
		return logits, err
	}
	return logits, r.dev.Sync()
}

func (r *runner) setPages(sequence int32, first int, pages []int32) {
	r.cache.SetPages(sequence, first, pages)
}

func (r *runner) step(rows []model.Row, params []npu.SampleParams, ids []int32, logp []float32) (npu.Buffer, error) {
	return r.run.Step(r.weights, r.cache, rows, params, ids, logp)
}

func (r *runner) score(logp []float32, rows, targets []int32, temperature float32) error {
	return r.run.LogProbs(r.weights, logp, rows, targets, temperature)
}

func (r *runner) logitsOf(dst []float32, rows []int32) error {
	return r.run.Logits(r.weights, dst, rows)
}

func (r *runner) download(dst []float32, src npu.Buffer) error {
	r.dev.Download(dst, src)
	return r.dev.Sync()
}

func (r *runner) copyPage(dst, src int32) { r.cache.CopyPage(dst, src) }

func (r *runner) sample(ids []int32, logp []float32, logits npu.Buffer, params []npu.SampleParams) error {
	return r.run.Sample(ids, logp, logits, params)
}

func (r *runner) close() error { return errors.Join(r.release(), r.dev.Sync(), r.dev.Close()) }

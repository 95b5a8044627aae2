package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// shapes returns the shapes of the measured models by name. They are the same as in peers/torch_work.py.
func shapes() map[string]*model.Config {
	base := model.Config{Type: "qwen3", MaxPositions: 1024, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.02, QKNorm: true,
		Tied: true, BOS: -1}
	small, large := base, base
	small.HiddenSize, small.FFNSize, small.Layers, small.Heads, small.KVHeads, small.HeadDim, small.VocabSize = 128,
		384, 4, 4, 2, 32, 53
	large.HiddenSize, large.FFNSize, large.Layers, large.Heads, large.KVHeads, large.HeadDim, large.VocabSize = 512,
		1536, 8, 8, 4, 64, 4096
	return map[string]*model.Config{"0.8M": &small, "25M": &large}
}

// work does one kind of work in this process: once to warm up, then n times timed. Depending on the
// kind, name is a model of shapes, a selection of shapes, the Python that trains, or a number.
func work(kind, name string, threads, n int) (outcome, error) {
	var once func() error
	var err error
	switch kind {
	case "gemm":
		return products(name, threads, n)
	case "quickstart":
		return quickstart(name, threads, n)
	case "long":
		return long(name, threads, n)
	case "start":
		return start(n)
	case "overhead":
		instances, err := strconv.Atoi(name)
		if err != nil {
			return outcome{}, err
		}
		return overhead(instances, n)
	case "length", "shared", "repeated":
		var size int
		if size, err = strconv.Atoi(name); err == nil {
			once, err = growWork(kind, size, threads)
		}
	case "train":
		once, err = trainWork(name, threads)
	case "grpo":
		once, err = groupWork(name, threads)
	case "generate":
		once, err = generateWork(name, threads)
	default:
		err = fmt.Errorf("kind of work is %q, expected one of measurements or curves", kind)
	}
	if err != nil {
		return outcome{}, err
	}
	seconds, err := timed(n, once)
	return outcome{Seconds: map[string][]float64{"": seconds}}, err
}

// timed calls once to warm up, then n times, and returns the seconds of each of these.
func timed(n int, once func() error) ([]float64, error) {
	var seconds []float64
	for i := range n + 1 {
		began := time.Now()
		if err := once(); err != nil {
			return nil, err
		}
		if i > 0 {
			seconds = append(seconds, time.Since(began).Seconds())
		}
	}
	return seconds, nil
}

// open returns a CPU device and the shape of the named model. The process ends without closing the device.
func open(name string, threads int) (npu.Device, *model.Config, error) {
	c := shapes()[name]
	if c == nil {
		return nil, nil, fmt.Errorf("model %q, expected 0.8M or 25M", name)
	}
	dev, err := cpu.Open(npu.FP32, threads)
	return dev, c, err
}

// tokens draws n token IDs below vocab.
func tokens(rng *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(vocab))
	}
	return ids
}

// models returns training models with random weights in the shape of c.
func models(dev npu.Device, c *model.Config, cfg trimodel.Config) (*trimodel.Models, error) {
	w, err := model.NewWeights(dev, c, npu.Weights)
	if err != nil {
		return nil, err
	}
	if err := w.Init(1); err != nil {
		w.Free()
		return nil, err
	}
	cfg.Optim, cfg.Format = optim.Default(), optim.FixedPoint(1e6, 1e3)
	return trimodel.New(dev, w, cfg)
}

// trainWork prepares a training step on every token of independent sequences.
func trainWork(name string, threads int) (func() error, error) {
	dev, c, err := open(name, threads)
	if err != nil {
		return nil, err
	}
	batch, length := 64, 64
	if name == "25M" {
		batch, length = 8, 512
	}
	m, err := models(dev, c, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var l attention.Layout
	leafStart := 0 // first row of the current leaf
	for range batch {
		ids := tokens(rng, length, c.VocabSize)
		if l.Rows()-leafStart+length-1 > 512 { // a leaf as in supervised fine-tuning
			l.EndLeaf()
			leafStart = l.Rows()
		}
		l.AddResponse(l.Add(-1, ids[:1], false), ids[1:])
	}
	l.EndLeaf()
	return stepOn(m, &l, dev.Sync), nil
}

// groupWork prepares a GRPO step on one group, with policy, old policy and reference.
func groupWork(name string, threads int) (func() error, error) {
	dev, c, err := open(name, threads)
	if err != nil {
		return nil, err
	}
	m, err := models(dev, c, trimodel.Config{OldPolicy: loss.PreviousStep, Reference: true, Temperature: 1})
	if err != nil {
		return nil, err
	}
	cfg := loss.Default()
	cfg.Beta, cfg.OldPolicy = 0.01, loss.PreviousStep
	objective, err := loss.New(cfg)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var l attention.Layout
	var advantage, weight []float32
	root := l.Add(-1, tokens(rng, 448, c.VocabSize), false)
	for _, n := range []int{32, 41, 50, 59, 69, 78, 87, 96} {
		l.AddResponse(root, tokens(rng, n, c.VocabSize))
		a := float32(rng.NormFloat64())
		for range n {
			advantage, weight = append(advantage, a), append(weight, 1)
		}
	}
	version := int64(0)
	return func() error {
		version++
		if _, err := m.Publish(context.Background(), version); err != nil {
			return err
		}
		out, err := m.Forward(&l, version)
		if err != nil {
			return err
		}
		got, err := objective.Eval(loss.Vars{
			Policy: out.Values[backend.Policy], Old: out.Values[backend.OldPolicy],
			Reference: out.Values[backend.Reference], Advantage: advantage, Weight: weight,
		})
		if err != nil {
			return err
		}
		if err := m.Backward(backend.Values{backend.Policy: got.Grad}); err != nil {
			return err
		}
		_, err = m.Step(context.Background(),
			backend.Update{Number: int(version), Scale: 1 / float64(got.Tokens), LR: 1e-6, Clip: 1})
		return errors.Join(err, dev.Sync())
	}, nil
}

// generateWork samples 8 responses of 64 tokens to each of 64 prompts of 16 tokens, on
// one instance per thread.
func generateWork(name string, threads int) (func() error, error) {
	dev, c, err := open(name, 1)
	if err != nil {
		return nil, err
	}
	w, err := model.NewWeights(dev, c, npu.Weights)
	if err != nil {
		return nil, err
	}
	if err := w.Init(1); err != nil {
		w.Free()
		return nil, err
	}
	f, err := fleet.New(fleet.DefaultConfig())
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	running := 32 // concurrent responses; their key-value pages fit the processor's cache
	if name == "25M" {
		running = 256 // the weights exceed the processor's cache; larger batches read them less often
	}
	for i := range threads {
		instanceDev, err := cpu.Open(npu.FP32, 1)
		if err != nil {
			return nil, err
		}
		e, err := engine.New(engine.Config{ID: fmt.Sprint("bench-", i), MaxRunning: running, CachePages: running * 8},
			c, nil, instanceDev)
		if err == nil {
			err = f.Add(ctx, e)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := f.Publish(ctx, model.NewSnapshot(w, 1)); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	prompts := make([][]int32, 64)
	for i := range prompts {
		prompts[i] = tokens(rng, 16, c.VocabSize)
	}
	return func() error {
		tasks := pool.New().WithErrors()
		for i, ids := range prompts {
			tasks.Go(func() error {
				out, _, err := f.Generate(ctx, inference.Request{PromptIDs: ids, N: 8, Seed: uint64(i), Version: 1,
					Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 64}})
				if err == nil && (len(out) != 8 || len(out[0].IDs) != 64) {
					err = fmt.Errorf("got %d responses, the first with %d tokens", len(out), len(out[0].IDs))
				}
				return err
			})
		}
		return tasks.Wait()
	}, nil
}

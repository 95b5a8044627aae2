// Package canary provides reference log-probabilities for verifying inference servers:
// of a fixed prompt under the weights being published, and under perturbed weights.
package canary

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
)

// Prompt returns the first n of tokens, the concatenated prompts of the run, or
// fewer if the model's context is shorter. These are likely tokens, on which a
// server of lower precision agrees. If there are too few, Prompt returns ids
// spread over the vocabulary instead.
func Prompt(shape *model.Config, tokens []int32, n int) []int32 {
	n = min(n, shape.MaxPositions-1)
	if len(tokens) >= n {
		return tokens[:n:n]
	}
	vocab := shape.VocabSize
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i + 1) * max(1, vocab/(n+2)) % vocab)
	}
	return ids
}

// Reference computes the trainer's log-probabilities of a prompt, once per version of the
// weights, and makes perturbed weights. Its methods are safe for concurrent use.
type Reference struct {
	shape  *model.Config
	prompt []int32

	mu      sync.Mutex
	weights *model.Snapshot
	version int64 // of logp; 0 before the first call
	logp    []float32
	dev     npu.Device // a queue of the weights' device, opened by the first call
	tape    *model.Tape
	check   *perturbed // nil while nobody holds it
}

// perturbed are perturbed weights on a device of their own.
type perturbed struct {
	dev     npu.Device
	weights *model.Snapshot
	logp    []float32
	holders int
}

// NewReference returns a Reference for prompt, without weights.
func NewReference(shape *model.Config, prompt []int32) *Reference {
	return &Reference{shape: shape, prompt: prompt}
}

// Canary returns a canary that compares servers with r.
func (r *Reference) Canary() *publish.Canary {
	return &publish.Canary{Prompt: r.prompt, Logprobs: r.Logprobs, Perturb: r.Perturb}
}

// SetWeights sets the weights being published. They must not change until the
// next call. nil means none.
func (r *Reference) SetWeights(w *model.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.weights = w
}

// Logprobs returns the prompt's log-probabilities under a version, which must be
// the published one. Entry i is that of token i given the tokens before it; entry
// 0 is 0.
func (r *Reference) Logprobs(_ context.Context, version int64) ([]float32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == version {
		return r.logp, nil
	}
	if r.weights == nil || r.weights.Version() != version {
		return nil, fmt.Errorf("version %d is no longer being published", version)
	}
	w := r.weights.Weights()
	if r.tape == nil {
		dev, err := w.Fork(0)
		if err != nil {
			return nil, err
		}
		r.dev, r.tape = dev, model.NewTape(dev, r.shape)
	}
	logp, err := forward(r.tape, w, r.prompt)
	if err != nil {
		return nil, err
	}
	r.version, r.logp = version, logp
	return logp, nil
}

// forward returns the log-probabilities of prompt under w.
func forward(tape *model.Tape, w *model.Weights, prompt []int32) ([]float32, error) {
	var l attention.Layout
	l.Add(-1, prompt, true)
	logp := make([]float32, len(l.Targets))
	err := tape.Forward(w, &l, 1, false, logp, make([]float32, len(logp)))
	if err == nil {
		err = tape.Wait()
	}
	if err != nil {
		return nil, err
	}
	return append(make([]float32, len(prompt)-len(logp)), logp...), nil
}

// Perturb returns perturbed weights. All callers share one copy, which is freed when each
// has freed its own.
func (r *Reference) Perturb(context.Context) (*publish.Perturbed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	prompt := Prompt(r.shape, nil, publish.CanaryTokens)
	if r.check == nil {
		c, err := r.perturb(prompt)
		if err != nil {
			return nil, err
		}
		r.check = c
	}
	c := r.check
	c.holders++
	return &publish.Perturbed{Weights: c.weights, Prompt: prompt, Logprobs: c.logp,
		Free: sync.OnceFunc(func() { r.free(c) })}, nil
}

// perturb makes perturbed weights.
func (r *Reference) perturb(prompt []int32) (c *perturbed, err error) {
	dev, err := device.Open(device.CPU, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	w, err := model.NewWeights(dev, r.shape, npu.Weights)
	if err != nil {
		return nil, err
	}
	if err := perturb(w); err != nil {
		return nil, err
	}
	tape := model.NewTape(dev, r.shape)
	defer tape.Close()
	logp, err := forward(tape, w, prompt)
	if err != nil {
		return nil, err
	}
	return &perturbed{dev: dev, weights: model.NewSnapshot(w, 0), logp: logp}, nil
}

// free gives up one holder's share of c.
func (r *Reference) free(c *perturbed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.holders--; c.holders == 0 {
		r.check = nil
		_ = c.dev.Close() // frees the weights
	}
}

// Close closes the device's queue. Later calls of Logprobs fail.
func (r *Reference) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.weights, r.version = nil, 0
	if r.tape == nil {
		return nil
	}
	r.tape.Close()
	r.tape = nil
	return r.dev.Close()
}

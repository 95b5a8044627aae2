// Package canary provides reference log-probabilities for verifying inference servers:
// of a fixed prompt under the weights being published, and under perturbed weights.
//
// A server that computes other log-probabilities for the prompt does not hold the published
// weights. Weights of two versions may differ too little to show that an update reached every
// tensor, so a server also takes perturbed weights once, in which each tensor has other values.
// Package publish makes the comparisons.
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

// Prompt returns a prompt of n tokens, or fewer if the model's context is shorter. It takes the
// first of tokens, the concatenated prompts of the run: a server of lower precision agrees best on
// likely tokens. If tokens has too few, Prompt returns IDs spread over the vocabulary instead.
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
// weights, and makes perturbed weights. Its methods are safe for concurrent use; one computes at a
// time.
type Reference struct {
	shape    *model.Config
	numerics npu.Numerics // of the trainer
	prompt   []int32

	mu        sync.Mutex
	weights   *model.Snapshot // being published; nil if none
	version   int64           // version that logp belongs to; 0 if logp is not set
	logp      []float32       // result of Logprobs for version
	dev       npu.Device      // a queue of the weights' device, opened by the first Logprobs
	tape      *model.Tape     // on dev; nil before the first Logprobs
	perturbed *perturbed      // shared by all callers of Perturb; nil while none holds it
}

// perturbed holds perturbed weights on a device of their own.
type perturbed struct {
	dev     npu.Device
	weights *model.Snapshot
	logp    []float32
	holders int // callers of Perturb that have not called Free; guarded by Reference.mu
}

// NewReference returns a Reference for prompt, without weights. numerics are those of the trainer's device.
func NewReference(shape *model.Config, numerics npu.Numerics, prompt []int32) *Reference {
	return &Reference{shape: shape, numerics: numerics, prompt: prompt}
}

// Canary returns a canary that compares servers with r.
func (r *Reference) Canary() *publish.Canary {
	return &publish.Canary{Prompt: r.prompt, Logprobs: r.Logprobs, Perturb: r.Perturb}
}

// SetWeights sets the weights being published, or none if w is nil. The weights must not change
// until the next call of SetWeights or Close returns.
func (r *Reference) SetWeights(w *model.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.weights = w
}

// Logprobs returns the prompt's log-probabilities under a version, which must be the one being
// published or that of the last call. Entry i is the log-probability of token i given the tokens
// before it; entry 0 is 0. Callers share the result and must not change it.
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

// forward returns the log-probabilities of prompt under w, at temperature 1. Entry 0 is 0.
func forward(tape *model.Tape, w *model.Weights, prompt []int32) ([]float32, error) {
	const (
		noParent = -1   // the prompt starts a sequence
		withLoss = true // every token but the first is a target
		keep     = false
	)
	var l attention.Layout
	l.Add(noParent, prompt, withLoss)
	logp := make([]float32, len(l.Targets))
	entropy := make([]float32, len(logp)) // required by Forward, unused
	err := tape.Forward(w, &l, 1, keep, logp, entropy)
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
	if r.perturbed == nil {
		p, err := r.newPerturbed(prompt)
		if err != nil {
			return nil, err
		}
		r.perturbed = p
	}
	p := r.perturbed
	p.holders++
	return &publish.Perturbed{Weights: p.weights, Prompt: prompt, Logprobs: p.logp,
		Free: sync.OnceFunc(func() { r.free(p) })}, nil
}

// newPerturbed makes perturbed weights and computes the log-probabilities of prompt under them.
func (r *Reference) newPerturbed(prompt []int32) (p *perturbed, err error) {
	dev, err := device.Open(device.CPU, r.numerics, 0)
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
	if err := fillPerturbed(w); err != nil {
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

// free removes one holder of p and frees p if it was the last.
func (r *Reference) free(p *perturbed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.holders--
	if p.holders == 0 {
		r.perturbed = nil
		_ = p.dev.Close() // frees the weights
	}
}

// Close frees what Logprobs needs. Later calls of Logprobs fail until SetWeights. Perturbed weights
// are freed by their holders.
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

// Package canary computes the log-probabilities of a fixed prompt, the canary
// tokens, under the weights being published, for comparison with those of
// inference servers.
package canary

import (
	"context"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/attention"
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

// Reference computes the trainer's log-probabilities of a prompt, once per
// version of the weights. Its methods are safe for concurrent use.
type Reference struct {
	shape  *model.Config
	prompt []int32

	mu      sync.Mutex
	weights *model.Snapshot
	version int64 // of logp; 0 before the first call
	logp    []float32
	dev     npu.Device // opened by the first call
	tape    *model.Tape
}

// NewReference returns a Reference for prompt, without weights.
func NewReference(shape *model.Config, prompt []int32) *Reference {
	return &Reference{shape: shape, prompt: prompt}
}

// Prompt returns the prompt.
func (r *Reference) Prompt() []int32 { return r.prompt }

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
	if r.tape == nil {
		dev, err := device.Open(device.CPU, 0)
		if err != nil {
			return nil, err
		}
		r.dev, r.tape = dev, model.NewTape(dev, r.shape)
	}
	var l attention.Layout
	l.Add(-1, r.prompt, true)
	logp := make([]float32, len(l.Targets))
	if err := r.tape.Forward(r.weights.Weights(), &l, 1, false, logp, make([]float32, len(logp))); err != nil {
		return nil, err
	}
	r.version, r.logp = version, append(make([]float32, len(r.prompt)-len(logp)), logp...)
	return r.logp, nil
}

// Close frees the device.
func (r *Reference) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tape == nil {
		return nil
	}
	r.tape.Close()
	return r.dev.Close()
}

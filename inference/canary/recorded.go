package canary

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/model/tensor"
)

// Recorded is a reference whose owner computes the log-probabilities of each version and records
// them with Set. Its methods are safe for concurrent use.
type Recorded struct {
	prompt    []int32
	perturbed *publish.Perturbed // shared by all servers

	mu      sync.Mutex
	version int64 // version that logp belongs to; 0 before the first Set
	logp    []float32
}

// NewRecorded returns a Recorded for prompt, without a version. All servers share p, whose owner is
// the caller.
func NewRecorded(prompt []int32, p *publish.Perturbed) *Recorded {
	return &Recorded{prompt: prompt, perturbed: p}
}

// Set records the prompt's log-probabilities under the version being published, in the form of
// publish.Canary.Logprobs. The caller must not change logp afterwards.
func (r *Recorded) Set(version int64, logp []float32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version, r.logp = version, logp
}

// Prompt returns the prompt.
func (r *Recorded) Prompt() []int32 { return r.prompt }

// Canary returns what connections to servers need to verify them.
func (r *Recorded) Canary() *publish.Canary {
	return &publish.Canary{Prompt: r.prompt, Logprobs: r.logprobs,
		Perturb: func(context.Context) (*publish.Perturbed, error) { return r.perturbed, nil }}
}

// logprobs returns the recorded log-probabilities of a version, which must be the latest that Set got.
func (r *Recorded) logprobs(_ context.Context, version int64) ([]float32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version != version {
		return nil, fmt.Errorf("version %d is no longer being published", version)
	}
	return r.logp, nil
}

// SetWeights does nothing: the owner calls Set instead.
func (r *Recorded) SetWeights(*model.Snapshot) {}

// Close does nothing.
func (r *Recorded) Close() error { return nil }

// Perturbed returns perturbed weights that hold no values: each write computes them again. It calls
// use with each tensor once; the values are valid during the call. It returns use's error.
func Perturbed(c *model.Config, use source.Use) (inference.Weights, error) {
	w := computed{model.VersionFile{Config: c}}
	var values []float32
	params := c.Params()
	sums := params.Sums()
	const threads = 1
	for i := range params {
		p := &params[i]
		values = w.values(p, values)
		err := p.Sum(values, sums[p.Name], threads)
		if err == nil {
			err = use(i, p, values)
		}
		if err != nil {
			return nil, err
		}
	}
	w.Sum = sums.Total()
	return w, nil
}

// computed is perturbed weights that are computed when they are written.
type computed struct{ model.VersionFile }

var _ publish.Sized = computed{}

// Version returns the version of perturbed weights.
func (w computed) Version() int64 { return 0 }

// Checksum returns the checksum of the values.
func (w computed) Checksum() string { return w.Sum }

// WriteSafetensors computes the values tensor by tensor.
func (w computed) WriteSafetensors(to io.Writer) error {
	var values []float32
	return w.Write(to, func(p *tensor.Param) ([]float32, error) {
		values = w.values(p, values)
		return values, nil
	})
}

// values returns the values of a tensor. It reuses the memory of values if it is large enough.
func (w computed) values(p *tensor.Param, values []float32) []float32 {
	n := p.Shape().Values()
	value := Perturbation(w.Config, p.Name, p.Cols)
	values = slices.Grow(values[:0], n)[:n]
	for i := range values {
		values[i] = value(i)
	}
	return values
}

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

// Recorded verifies servers by log-probabilities that its owner computes for each version. Its
// methods are safe for concurrent use.
type Recorded struct {
	prompt    []int32
	perturbed *publish.Perturbed // shared by all servers

	mu      sync.Mutex
	version int64 // of logp
	logp    []float32
}

// NewRecorded returns a Recorded for prompt, without a version. Servers share p.
func NewRecorded(prompt []int32, p *publish.Perturbed) *Recorded {
	return &Recorded{prompt: prompt, perturbed: p}
}

// Set sets the prompt's log-probabilities under the version being published; see
// publish.Canary.Logprobs.
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

func (r *Recorded) logprobs(_ context.Context, version int64) ([]float32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version != version {
		return nil, fmt.Errorf("version %d is no longer being published", version)
	}
	return r.logp, nil
}

// SetWeights does nothing: the owner calls Set.
func (r *Recorded) SetWeights(*model.Snapshot) {}

// Close does nothing.
func (r *Recorded) Close() error { return nil }

// Perturbed returns perturbed weights that take no memory: each write computes them again. It calls
// use with each tensor once.
func Perturbed(c *model.Config, use source.Use) (inference.Weights, error) {
	w := computed{model.VersionFile{Config: c}}
	var values []float32
	params := c.Params()
	sums := params.Sums()
	for i := range params {
		p := &params[i]
		values = w.values(p, values)
		err := p.Sum(values, sums[p.Name], 1)
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

// computed are perturbed weights without memory.
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

// values returns the values of a tensor, in the memory of values if they fit.
func (w computed) values(p *tensor.Param, values []float32) []float32 {
	n, value := p.Shape().Values(), Perturbation(w.Config, p.Name, p.Cols)
	values = slices.Grow(values[:0], n)[:n]
	for i := range values {
		values[i] = value(i)
	}
	return values
}

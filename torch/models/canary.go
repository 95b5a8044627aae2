package models

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/torch/wire"
)

// NewCanary returns a canary that uses prompt, and makes every later Publish compute the prompt's
// log-probabilities. start is the folder of the starting weights. The canary's perturbed weights are an
// adapter if m publishes adapters.
func (m *Models) NewCanary(
	ctx context.Context, start string, shape *model.Config, prompt []int32,
) (*canary.Recorded, error) {
	dir := filepath.Join(m.dir, "perturbed")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("perturbed weights: %w", err)
	}
	spread := canary.Prompt(shape, nil, publish.CanaryTokens)
	w, err := m.perturb(ctx, start, dir, shape)
	if err != nil {
		return nil, fmt.Errorf("perturbed weights: %w", err)
	}
	logp, err := m.logprobs(ctx, spread, dir)
	if err != nil {
		return nil, fmt.Errorf("perturbed weights: %w", err)
	}
	p := &publish.Perturbed{Weights: w, Prompt: spread, Logprobs: logp, Free: func() {}}
	if m.adapters {
		policy, err := m.logprobs(ctx, spread, "")
		if err != nil {
			return nil, fmt.Errorf("perturbed weights: %w", err)
		}
		p.Limit = publish.Distance(logp, policy) * adapterError
	}
	m.canary = canary.NewRecorded(prompt, p)
	return m.canary, nil
}

// perturb writes perturbed weights, or a perturbed adapter, to dir.
func (m *Models) perturb(ctx context.Context, start, dir string, shape *model.Config) (inference.Weights, error) {
	if !m.adapters {
		path, err := writePerturbed(start, dir, shape)
		if err != nil {
			return nil, err
		}
		return openFile(path, 0)
	}
	if err := m.Write(ctx, wire.Adapter, dir); err != nil { // for names, shapes and configuration
		return nil, err
	}
	if err := perturbAdapter(start, dir); err != nil {
		return nil, err
	}
	return openAdapter(dir, 0)
}

// logprobs returns the log-probabilities of ids under the weights in dir, or under the policy
// if dir is empty, at temperature 1. Entry 0 is 0, because the first token has none.
func (m *Models) logprobs(ctx context.Context, ids []int32, dir string) ([]float32, error) {
	var l attention.Layout
	l.Add(-1, ids, true)
	logp, err := m.ScoreAs(ctx, &l, dir, 1)
	return append([]float32{0}, logp...), err
}

// recordVersion computes the log-probabilities of the canary's prompt under the policy that Publish
// publishes.
func (m *Models) recordVersion(ctx context.Context, version int64) error {
	logp, err := m.logprobs(ctx, m.canary.Prompt(), "")
	if err == nil {
		m.canary.Set(version, logp)
	}
	return err
}

// writePerturbed writes perturbed weights, with the names and shapes of those in the folder start, to dir
// and returns the file's path.
func writePerturbed(start, dir string, shape *model.Config) (path string, err error) {
	f, err := checkpoint.OpenFolder(start)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	var sources []checkpoint.Source
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		cols := 0
		if n := len(t.Shape); n > 1 {
			cols = t.Shape[n-1]
		}
		value := canary.Perturbation(shape, name, cols)
		fill := checkpoint.Filled(func(dst []float32) {
			for i := range dst {
				dst[i] = value(i)
			}
		})
		sources = append(sources, checkpoint.Source{Name: name, Shape: t.Shape, Write: fill})
	}
	path = filepath.Join(dir, "model.safetensors")
	return path, checkpoint.WriteFile(path, sources, map[string]string{"format": "pt"})
}

package models

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/torch/wire"
)

// Canary verifies servers whose decoder package model does not know, or that receive adapters.
// It compares with log-probabilities that the ranks compute. Its methods are safe for concurrent use.
type Canary struct {
	prompt    []int32
	perturbed *publish.Perturbed // shared by all servers

	mu      sync.Mutex
	version int64 // of logp
	logp    []float32
}

// NewCanary returns a canary that uses prompt. Every later Publish computes the prompt's
// log-probabilities. start is the folder of the starting weights. If m publishes adapters, so is
// what NewCanary perturbs.
func (m *Models) NewCanary(ctx context.Context, start string, shape *model.Config, prompt []int32) (*Canary, error) {
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
		own, err := m.logprobs(ctx, spread, "")
		if err != nil {
			return nil, fmt.Errorf("perturbed weights: %w", err)
		}
		p.Limit = publish.Distance(logp, own) * adapterError
	}
	m.canary = &Canary{prompt: prompt, perturbed: p}
	return m.canary, nil
}

// perturb writes perturbed weights, or a perturbed adapter, to dir.
func (m *Models) perturb(ctx context.Context, start, dir string, shape *model.Config) (inference.Weights, error) {
	if !m.adapters {
		path, err := perturb(start, dir, shape)
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
// if dir is empty. Entry 0 is 0.
func (m *Models) logprobs(ctx context.Context, ids []int32, dir string) ([]float32, error) {
	var l attention.Layout
	l.Add(-1, ids, true)
	logp, err := m.ScoreAs(ctx, &l, dir, 1)
	return append([]float32{0}, logp...), err
}

// look computes the prompt's log-probabilities under the policy that is being published.
func (c *Canary) look(ctx context.Context, m *Models, version int64) error {
	logp, err := m.logprobs(ctx, c.prompt, "")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.logp = version, logp
	return nil
}

// Canary returns what connections to servers need to verify them.
func (c *Canary) Canary() *publish.Canary {
	return &publish.Canary{Prompt: c.prompt, Logprobs: c.logprobs, Perturb: func(context.Context) (*publish.Perturbed, error) { return c.perturbed, nil }}
}

func (c *Canary) logprobs(_ context.Context, version int64) ([]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != version {
		return nil, fmt.Errorf("version %d is no longer being published", version)
	}
	return c.logp, nil
}

// SetWeights does nothing: Models.Publish computes the log-probabilities.
func (c *Canary) SetWeights(*model.Snapshot) {}

// Close does nothing.
func (c *Canary) Close() error { return nil }

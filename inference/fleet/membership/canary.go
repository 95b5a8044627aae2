package membership

import (
	"context"
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// canary knows the log-probabilities of a fixed prompt under the weights that
// are being published, as the trainer computes them.
type canary struct {
	deps *Deps

	mu      sync.Mutex
	now     *model.Snapshot
	version int64 // that logp is of; 0 for none
	logp    []float32
	dev     npu.Device // opened when it is first needed
	tape    *model.Tape
}

// prompt is the first n tokens of the run's own prompts, one after the other:
// likely ones, which a server of lower precision gets right. Without so many they
// are spread over the vocabulary.
func (c *canary) prompt(n int) []int32 {
	n = min(n, c.deps.Shape.MaxPositions-1)
	if len(c.deps.Begins) >= n {
		return c.deps.Begins[:n:n]
	}
	vocab := c.deps.Shape.VocabSize
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i + 1) * max(1, vocab/(n+2)) % vocab)
	}
	return ids
}

// set says which weights are published from now on. They stay as they are until
// the next call.
func (c *canary) set(w inference.Weights) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, _ = w.(*model.Snapshot)
}

// logprobs are those of the prompt under a version: entry i that of token i
// after those before it, entry 0 is 0.
func (c *canary) logprobs(_ context.Context, prompt []int32, version int64) ([]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == version {
		return c.logp, nil
	}
	if c.now == nil || c.now.Version() != version {
		return nil, fmt.Errorf("version %d is published no more", version)
	}
	if c.tape == nil {
		dev, err := cpu.Open(0)
		if err != nil {
			return nil, err
		}
		c.dev, c.tape = dev, model.NewTape(dev, c.deps.Shape)
	}
	var l attention.Layout
	l.Add(-1, prompt, true)
	logp := make([]float32, len(l.Targets))
	if err := c.tape.Forward(c.now.Weights(), &l, 1, false, logp, make([]float32, len(logp))); err != nil {
		return nil, err
	}
	c.version, c.logp = version, append(make([]float32, len(prompt)-len(logp)), logp...)
	return c.logp, nil
}

func (c *canary) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tape == nil {
		return nil
	}
	c.tape.Close()
	return c.dev.Close()
}

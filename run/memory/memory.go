// Package memory estimates the memory that a run needs and compares it with what the
// machine, or the process's control group, has.
package memory

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/parallel"
)

// Need is the memory of the process that hosts the trainer, by purpose, in bytes. Weights,
// Gradients, Moments and Activations are those of all ranks in the process.
type Need struct {
	// Copies counts the copies of the model's weights, or of a rank's part of them: the policy,
	// two published versions and the reference. Weights is their size.
	Copies  int   `json:"copies"`
	Weights int64 `json:"weights"`
	// Whole is the size of the versions of the whole model that the process holds in addition to
	// its ranks' parts. WholeCopies is their number.
	Whole       int64 `json:"whole_weights"`
	WholeCopies int   `json:"whole_copies"`
	// Gradients and Moments belong to the policy.
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"optimizer"`
	// Saved holds the copies of weights and moments while a checkpoint is written.
	Saved int64 `json:"checkpoint"`
	// Sent is the copy that easyrl servers receive, or the tensors of ranks on their way to servers.
	Sent int64 `json:"servers"`
	// Verified is the copy of perturbed weights with which vLLM and SGLang servers are
	// verified.
	Verified int64 `json:"verification"`
	// Activations is the most that the trainer's passes over Rows tokens need.
	Activations int64 `json:"activations"`
	Rows        int   `json:"rows"`
	// Ranks is empty for one rank. The first Here of them are in this process.
	Ranks []Rank `json:"ranks,omitempty"`
	Here  int    `json:"ranks_here"`
	// Instances counts the engines in the process. Each has a cache of keys and values with
	// Pages pages, and room for the activations of EngineRows tokens.
	Instances  int   `json:"instances"`
	Cache      int64 `json:"instance_cache"`
	Pages      int   `json:"instance_pages"`
	Running    int64 `json:"instance_activations"`
	EngineRows int   `json:"instance_rows"`
	// Swap is nil unless training and sampling take turns with a device's memory.
	Swap *Swap `json:"swap,omitempty"`

	leaf      int  // rows of the largest leaf, which train.micro_batch_tokens does not divide
	elsewhere bool // the trainer's part is on a device with its own memory
	beside    int  // number of the run's processes on this machine, including this one
}

// Of returns the memory that training a model of this shape needs; sft means supervised
// training. each is the configuration of the run's engines, most the size of its data, and p the
// process of rank 0. The run's mesh can divide shape.
func Of(cfg *configs.Config, shape *model.Config, each engine.Config, most Tokens, sft bool, p parallel.Process) Need {
	n := Need{Copies: 3, Here: 1, Rows: most.MicroBatchRows(cfg, sft), leaf: most.Leaf,
		elsewhere: cfg.Device.Kind != device.CPU, beside: p.LocalSize}
	switch {
	case sft:
		n.Copies = 1
	case cfg.Loss.Beta > 0:
		n.Copies++
	}
	if !sft && cfg.Inference.Instances > 0 {
		n.WholeCopies = 2
	}
	saved := 1
	if !sft && cfg.Loss.OldPolicy == loss.PreviousStep {
		saved = 2
	}
	n.train(cfg, shape, p, saved)
	if sft {
		return n
	}
	n.sampling(cfg, shape, each)
	if cfg.Swaps() {
		n.Swap = n.swap()
	}
	return n
}

// OfTorch returns the memory that training on PyTorch ranks needs in this process: two published
// versions of the model, and what sampling needs. known means that shape describes the model
// fully and that the run publishes whole weights.
func OfTorch(cfg *configs.Config, shape *model.Config, known bool, each engine.Config) Need {
	if !known {
		return Need{} // files hold the versions, and servers sample
	}
	n := Need{Copies: 2, Weights: 8 * shape.NumParams()}
	n.sampling(cfg, shape, each)
	return n
}

// sampling adds what sampling needs.
func (n *Need) sampling(cfg *configs.Config, shape *model.Config, each engine.Config) {
	one := 4 * shape.NumParams()
	exact, other := servers(&cfg.Inference)
	if len(n.Ranks) > 0 && n.WholeCopies == 0 { // weights are read from the ranks, for each server apart
		n.Sent = int64(len(cfg.Inference.Endpoints)+2) * largest(shape) // also to sum it, and in parts on the ranks
		exact, other = false, false
	}
	if exact {
		n.Sent = one
	}
	if other {
		n.Verified = one
	}
	if n.Instances = cfg.Inference.Instances; n.Instances > 0 {
		held := each.Cache(shape)
		n.Pages, n.EngineRows = held.Pages, each.Rows(shape.MaxPositions)
		n.Cache, n.Running = held.Bytes(), model.RunnerBytes(shape, n.EngineRows, each.MaxRunning)
	}
}

// servers reports whether the run has servers that are exact, to which it sends weights from
// memory, and others, which it verifies.
func servers(c *configs.Inference) (exact, other bool) {
	if c.Kind == configs.Embedded {
		return false, false
	}
	for _, text := range c.Endpoints {
		e, err := remote.ParseEndpoint(text, c.Kind)
		if err == nil && remote.IsExact(e.Kind) {
			exact = true
		} else if err == nil {
			other = true
		}
	}
	return exact, other
}

// Certain returns the memory that the process allocates for any data.
func (n *Need) Certain() int64 {
	host := n.Saved + n.Sent + n.Verified
	if n.Swap != nil {
		host += n.Swap.Host
	}
	if n.elsewhere {
		return host
	}
	return host + n.instances() + n.Weights + n.Whole + n.Gradients + n.Moments
}

// instances returns the memory of the instances, which are on the trainer's device.
func (n *Need) instances() int64 { return int64(n.Instances) * (n.Cache + n.Running) }

// Most returns the most memory that the process needs.
func (n *Need) Most() int64 {
	if n.elsewhere {
		return n.Certain()
	}
	return n.Certain() + n.Activations
}

// Check returns a usage error if the process cannot fit into the limit. It warns if the process,
// or the run's processes on this machine, may not fit.
func (n *Need) Check(limit Limit, warn func(format string, args ...any)) error {
	others, rest := n.others()
	switch {
	case limit.Bytes <= 0:
		return nil
	case n.Certain() > limit.Bytes:
		return usage.Errorf("the run needs %s of memory, expected at most %s, the memory of %s: %s. %s",
			bytesize.Text(n.Certain()), bytesize.Text(limit.Bytes), limit.Of, n.parts(), n.remedy(limit))
	case n.Most() > limit.Bytes:
		remedy := "Lower train.micro_batch_tokens, or set train.recompute = true."
		if n.Rows <= n.leaf {
			remedy = "Set train.recompute = true."
		}
		warn("the run may need %s of memory, more than the %s of %s: a pass over %d tokens takes up to %s. %s",
			bytesize.Text(n.Most()), bytesize.Text(limit.Bytes), limit.Of, n.Rows, bytesize.Text(n.pass()), remedy)
	case n.Most()+rest > limit.Bytes:
		warn("the run's processes on this machine may need %s of memory, more than the %s of %s: rank 0's %s and %s "+
			"of %d others. Start fewer ranks on each machine.",
			bytesize.Text(n.Most()+rest), bytesize.Text(limit.Bytes), limit.Of, bytesize.Text(n.Most()),
			bytesize.Text(rest), others)
	}
	return nil
}

// pass returns the activations of a pass of the rank that needs most.
func (n *Need) pass() int64 {
	most := int64(0)
	for i := range n.Ranks {
		most = max(most, n.Ranks[i].Pass)
	}
	return cmp.Or(most, n.Activations)
}

// parts lists what Certain adds up.
func (n *Need) parts() string {
	var list []string
	if !n.elsewhere {
		weights := "weights "
		if n.Here > 1 {
			weights = fmt.Sprintf("weights of %d ranks ", n.Here)
		}
		list = append(list, weights+bytesize.Text(n.Weights)+copies(n.Copies))
		if n.Whole > 0 {
			list = append(list, "whole weights "+bytesize.Text(n.Whole)+copies(n.WholeCopies))
		}
		list = append(list, "gradients "+bytesize.Text(n.Gradients), "optimizer "+bytesize.Text(n.Moments))
	}
	list = append(list, "checkpoints "+bytesize.Text(n.Saved))
	if n.Sent > 0 {
		list = append(list, "weights for servers "+bytesize.Text(n.Sent))
	}
	if n.Verified > 0 {
		list = append(list, "verification of servers "+bytesize.Text(n.Verified))
	}
	if n.Swap != nil {
		list = append(list, "swapped state "+bytesize.Text(n.Swap.Host))
	}
	if n.Instances > 0 && !n.elsewhere {
		list = append(list, "instances "+bytesize.Text(n.instances()))
	}
	return strings.Join(list, ", ")
}

func copies(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d copies)", n)
}

// remedy says how to shrink a run that does not fit.
func (n *Need) remedy(limit Limit) string {
	if !n.elsewhere && n.Certain()-n.instances() < limit.Bytes {
		return "Lower inference.max_running or inference.instances."
	}
	if n.Here > 1 {
		return "Choose a smaller model, or start the ranks on several machines."
	}
	return "Choose a smaller model or a larger machine."
}

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
	// Copies is the number of copies of the model's weights, or of a rank's part of them: the policy,
	// two published versions and, if there is one, the reference. Weights is the size of all copies.
	Copies  int   `json:"copies"`
	Weights int64 `json:"weights"`
	// WholeCopies is the number of copies of the complete model that the process holds in addition to its
	// ranks' parts, for embedded instances. Whole is the size of these copies.
	Whole       int64 `json:"whole_weights"`
	WholeCopies int   `json:"whole_copies"`
	// Gradients and Moments belong to the policy.
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"optimizer"`
	// Saved holds the copies of weights and moments while a checkpoint is written.
	Saved int64 `json:"checkpoint"`
	// Sent is the copy of the weights that easyrl servers receive, or, if ranks send their parts, of the tensors
	// in transit.
	Sent int64 `json:"servers"`
	// Verified is the copy of perturbed weights with which vLLM and SGLang servers are
	// verified.
	Verified int64 `json:"verification"`
	// Activations is the maximum that the trainer's passes over Rows tokens need.
	Activations int64 `json:"activations"`
	Rows        int   `json:"rows"`
	// Ranks has an element for each rank, or none if there is one rank. The first Here ranks are in this process.
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

	leaf      int  // rows of the largest leaf; a smaller train.micro_batch_tokens does not divide it
	onDevice  bool // weights, gradients, moments and activations are in the memory of a device, not the host's
	localSize int  // number of the run's processes on this machine, including this one
}

// Of returns the memory that training a model of the given shape needs. sft selects supervised training, each is
// the configuration of every engine of the run, tokens the size of its data, and p the process of rank 0. The
// run's mesh must be able to divide shape.
func Of(
	cfg *configs.Config, shape *model.Config, each engine.Config, tokens Tokens, sft bool, p parallel.Process,
) Need {
	n := Need{Copies: 3, Here: 1, Rows: tokens.MicroBatchRows(cfg, sft), leaf: tokens.Leaf,
		onDevice: cfg.Device.Kind != device.CPU, localSize: p.LocalSize}
	switch {
	case sft:
		n.Copies = 1
	case cfg.Loss.Beta > 0:
		n.Copies++
	}
	if !sft && cfg.Inference.Instances > 0 {
		n.WholeCopies = 2
	}
	savedVersions := 1
	if !sft && cfg.Loss.OldPolicy == loss.PreviousStep {
		savedVersions = 2 // a checkpoint also holds the policy that sampled the last step
	}
	n.train(cfg, shape, p, savedVersions)
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
// versions of the model, and what sampling needs. holdsWeights is false if this process holds no weights, because
// easyrl does not know the decoder or the run publishes only adapters.
func OfTorch(cfg *configs.Config, shape *model.Config, holdsWeights bool, each engine.Config) Need {
	if !holdsWeights {
		return Need{} // published versions are files, and only servers sample
	}
	n := Need{Copies: 2, Weights: 8 * shape.NumParams()}
	n.sampling(cfg, shape, each)
	return n
}

// float32Bytes is the size of a value on its way to servers and files, whatever the numerics.
const float32Bytes = 4

// sampling adds what sampling needs.
func (n *Need) sampling(cfg *configs.Config, shape *model.Config, each engine.Config) {
	weights := float32Bytes * shape.NumParams()
	exact, other := servers(&cfg.Inference)
	if len(n.Ranks) > 0 && n.WholeCopies == 0 {
		// Weights are gathered from the ranks tensor by tensor: one tensor for each server, one for the checksum,
		// and one in parts on the ranks.
		n.Sent = int64(len(cfg.Inference.Endpoints)+2) * largestTensor(shape)
		exact, other = false, false
	}
	if exact {
		n.Sent = weights
	}
	if other {
		n.Verified = weights
	}
	n.Instances = cfg.Inference.Instances
	if n.Instances > 0 {
		cache := each.Cache(shape)
		n.Pages, n.Cache = cache.Pages, cache.Bytes(cfg.Numerics())
		n.EngineRows = each.Rows(shape.MaxPositions)
		n.Running = model.RunnerBytes(shape, cfg.Numerics(), n.EngineRows, each.MaxRunning)
	}
}

// servers reports which servers the run has: exact ones, to which it sends weights from memory, and others,
// which it verifies.
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

// Certain returns the host memory that the process allocates whatever the data is.
func (n *Need) Certain() int64 {
	host := n.Saved + n.Sent + n.Verified
	if n.Swap != nil {
		host += n.Swap.Host
	}
	if n.onDevice {
		return host
	}
	return host + n.instances() + n.Weights + n.Whole + n.Gradients + n.Moments
}

// instances returns the memory of the instances, which are on the trainer's device.
func (n *Need) instances() int64 { return int64(n.Instances) * (n.Cache + n.Running) }

// Max returns the maximum host memory that the process needs.
func (n *Need) Max() int64 {
	if n.onDevice {
		return n.Certain()
	}
	return n.Certain() + n.Activations
}

// Check returns a usage error if the process cannot fit into the limit. It warns if the process,
// or the run's processes on this machine, may not fit.
func (n *Need) Check(limit Limit, warn func(format string, args ...any)) error {
	others, othersMax := n.others()
	switch {
	case limit.Bytes <= 0:
		return nil
	case n.Certain() > limit.Bytes:
		return usage.Errorf("the run needs %s of memory, expected at most %s, the memory of %s: %s. %s",
			bytesize.Text(n.Certain()), bytesize.Text(limit.Bytes), limit.Owner, n.parts(), n.remedy(limit))
	case n.Max() > limit.Bytes:
		remedy := "Lower train.micro_batch_tokens, or set train.recompute = true."
		if n.Rows <= n.leaf {
			remedy = "Set train.recompute = true."
		}
		warn("the run may need %s of memory, more than the %s of %s: a pass over %d tokens takes up to %s. %s",
			bytesize.Text(n.Max()), bytesize.Text(limit.Bytes), limit.Owner, n.Rows, bytesize.Text(n.pass()), remedy)
	case n.Max()+othersMax > limit.Bytes:
		warn("the run's processes on this machine may need %s of memory, more than the %s of %s: rank 0's %s and %s "+
			"of %d others. Start fewer ranks on each machine.",
			bytesize.Text(n.Max()+othersMax), bytesize.Text(limit.Bytes), limit.Owner, bytesize.Text(n.Max()),
			bytesize.Text(othersMax), others)
	}
	return nil
}

// pass returns the activations of one pass, of the rank that needs the most memory for it.
func (n *Need) pass() int64 {
	largest := int64(0)
	for i := range n.Ranks {
		largest = max(largest, n.Ranks[i].Pass)
	}
	return cmp.Or(largest, n.Activations)
}

// parts lists what Certain adds up.
func (n *Need) parts() string {
	var list []string
	if !n.onDevice {
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
	if n.Instances > 0 && !n.onDevice {
		list = append(list, "instances "+bytesize.Text(n.instances()))
	}
	return strings.Join(list, ", ")
}

// copies returns " (n copies)", or "" for one copy.
func copies(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d copies)", n)
}

// remedy says how to shrink a run that does not fit.
func (n *Need) remedy(limit Limit) string {
	if !n.onDevice && n.Certain()-n.instances() < limit.Bytes {
		return "Lower inference.max_running or inference.instances."
	}
	if n.Here > 1 {
		return "Choose a smaller model, or start the ranks on several machines."
	}
	return "Choose a smaller model or a larger machine."
}

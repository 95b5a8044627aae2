package findings

import (
	"fmt"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/torch"
)

// Torch describes the PyTorch ranks that the check started.
type Torch struct {
	Parameters int64       `json:"parameters"` // number of the model's values
	Trained    int64       `json:"trained"`    // number of values that are trained; fewer with LoRA
	DType      string      `json:"dtype"`
	Mode       string      `json:"mode"`               // free or lockstep
	Packed     bool        `json:"packed"`             // a prompt is computed once for all its responses
	Attention  string      `json:"attention"`          // implementation of attention
	Reason     string      `json:"reason,omitempty"`   // why faster attention was rejected
	Slowdown   float64     `json:"slowdown,omitempty"` // see wire.Ready
	Ranks      []TorchRank `json:"ranks"`
}

// TorchRank is a PyTorch rank. Sizes are in bytes.
type TorchRank struct {
	Rank         int    `json:"rank"`
	Host         string `json:"host"`
	Device       string `json:"device"`
	DeviceName   string `json:"device_name"`
	DeviceMemory int64  `json:"device_memory"`
	Weights      int64  `json:"weights"`
	Gradients    int64  `json:"gradients"`
	Optimizer    int64  `json:"optimizer"`
	Python       string `json:"python"`
	PyTorch      string `json:"torch"`
	Transformers string `json:"transformers"`
	PEFT         string `json:"peft"`
}

// OfTorch returns the findings about ranks. There must be at least one.
func OfTorch(ranks []torch.RankInfo) *Torch {
	first := &ranks[0]
	t := &Torch{Parameters: first.Ready.Parameters, Trained: first.Ready.Trained, DType: first.Ready.DType,
		Mode:   first.Ready.Mode,
		Packed: first.Ready.Packed, Attention: first.Ready.Attention, Reason: first.Ready.Reason,
		Slowdown: first.Ready.Slowdown}
	for i := range ranks {
		r := &ranks[i]
		t.Ranks = append(t.Ranks, TorchRank{Rank: r.Hello.Rank, Host: r.Hello.Host, Device: r.Hello.Device,
			DeviceName: r.Hello.DeviceName, DeviceMemory: r.Hello.Memory,
			Weights: r.Ready.Memory.Weights, Gradients: r.Ready.Memory.Gradients, Optimizer: r.Ready.Memory.Optimizer,
			Python: r.Hello.Versions["python"], PyTorch: r.Hello.Versions["torch"],
			Transformers: r.Hello.Versions["transformers"], PEFT: r.Hello.Versions["peft"]})
	}
	return t
}

// write writes what the ranks share, then a line for each.
func (t *Torch) write(line func(format string, args ...any)) {
	text := fmt.Sprintf("torch: %s parameters, %s trained, %s, mode %s, ", report.Parameters(t.Parameters),
		report.Parameters(t.Trained), t.DType, t.Mode)
	if t.Packed {
		line("%sshared prompts computed once (attention %s)", text, t.Attention)
	} else {
		line("%sseparate sequences: %s", text, t.Reason)
	}
	size := bytesize.Text
	for _, r := range t.Ranks {
		line("torch rank %d on %s: %s (%s, %s), weights %s, gradients %s, optimizer %s; Python %s, torch %s, "+
			"transformers %s, peft %s", r.Rank, r.Host,
			r.Device, r.DeviceName, size(r.DeviceMemory), size(r.Weights), size(r.Gradients), size(r.Optimizer),
			r.Python, r.PyTorch, r.Transformers, r.PEFT)
	}
}

package torch

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"

	"github.com/easyrl/easyrl/torch/wire"
)

// Settings configures the PyTorch ranks of train.backend = "torch". [parallel] sets their
// number.
type Settings struct {
	// Python interpreter that starts the ranks on this machine. It needs the packages in
	// torch/worker/requirements.txt.
	Python string `toml:"python"`
	// Address to listen on for ranks that you start with torchrun, such as "0.0.0.0:7100". If
	// empty, easyrl starts the ranks.
	Listen string `toml:"listen"`
	// File with the token that ranks must send to be accepted. Required with Listen.
	TokenFile string `toml:"token_file"`
	// Folder in which trainer and ranks exchange weights; by default the folder torch in the run's
	// folder.
	Dir string `toml:"dir"`
	// Type that the ranks compute in: "float32", "bfloat16", or "auto", which is "float32" on CPUs
	// and "bfloat16" elsewhere.
	DType string `toml:"dtype"`
	// How replicas hold the model: "free" keeps all weights and gradients on each replica, so that
	// replicas work independently; "lockstep" shards them; "auto" shards them if they do not fit.
	Mode string `toml:"mode"`
	// Rank of the LoRA adapters to train; 0 trains the weights themselves.
	LoRARank int `toml:"lora_rank"`
	// Alpha of the LoRA adapters. Their output is scaled by LoRAAlpha / LoRARank.
	LoRAAlpha float64 `toml:"lora_alpha"`
	// What a LoRA run publishes: "merged", whole weights with the adapter merged into them, or
	// "adapter", the adapter alone, which only vLLM servers take.
	Publish string `toml:"publish"`
}

// Values of Settings.Publish.
const (
	Merged  = "merged"
	Adapter = "adapter"
)

// DTypes lists the values of Settings.DType.
func DTypes() []string { return []string{"auto", "float32", wire.BFloat16} }

// Default returns the settings for ranks that easyrl starts with python3.
func Default() Settings {
	return Settings{Python: "python3", DType: DTypes()[0], Mode: wire.Auto, LoRAAlpha: 32, Publish: Merged}
}

// Validate reports all invalid settings together, each error beginning with its key.
func (s *Settings) Validate() error {
	var faults []error
	check := func(ok bool, key string, value any, expected string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s is %v, expected %s", key, value, expected))
		}
	}
	quoted := func(s string) string { return fmt.Sprintf("%q", s) }
	check(slices.Contains(DTypes(), s.DType), "dtype", quoted(s.DType), `"auto", "float32" or "bfloat16"`)
	check(slices.Contains([]string{wire.Auto, wire.Free, wire.Lockstep}, s.Mode), "mode", quoted(s.Mode),
		`"auto", "free" or "lockstep"`)
	check(s.LoRARank >= 0, "lora_rank", s.LoRARank, "0 or more")
	check(s.LoRAAlpha > 0 && s.LoRAAlpha <= math.MaxFloat32, "lora_alpha", s.LoRAAlpha, "more than 0")
	check(s.Publish == Merged || s.Publish == Adapter, "publish", quoted(s.Publish), `"merged" or "adapter"`)
	check(s.Publish != Adapter || s.LoRARank > 0, "publish", quoted(s.Publish), `"merged" if lora_rank is 0`)
	if s.Listen == "" {
		check(s.Python != "", "python", quoted(s.Python), "a Python or torch.listen")
		return errors.Join(faults...)
	}
	_, _, err := net.SplitHostPort(s.Listen)
	check(err == nil, "listen", quoted(s.Listen), `an address such as "0.0.0.0:7100"`)
	check(s.TokenFile != "", "token_file", quoted(s.TokenFile), "a file if listen is set")
	return errors.Join(faults...)
}

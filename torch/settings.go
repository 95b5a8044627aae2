package torch

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"

	"github.com/easyrl/easyrl/torch/wire"
)

// Settings sets the PyTorch ranks of train.backend = "torch". [parallel] sets their number.
type Settings struct {
	// Python with the packages of torch/worker/requirements.txt, with which easyrl starts the
	// ranks on this machine.
	Python string `toml:"python"`
	// Listen address for ranks that torchrun starts elsewhere, such as "0.0.0.0:7100". If empty,
	// easyrl starts the ranks.
	Listen string `toml:"listen"`
	// File with the token that the ranks present. Required with Listen.
	TokenFile string `toml:"token_file"`
	// Folder through which trainer and ranks exchange weights; by default torch in the run's
	// folder.
	Dir string `toml:"dir"`
	// Type that the ranks compute with: "float32", "bfloat16", or "auto", which is "float32" on
	// CPUs and "bfloat16" elsewhere.
	DType string `toml:"dtype"`
	// How replicas hold the model: "free" keeps whole weights and gradients on each, so that none
	// waits for another; "lockstep" divides them; "auto" divides them if they do not fit.
	Mode string `toml:"mode"`
	// Rank of LoRA adapters, which are then trained instead of the weights; 0 trains the weights.
	LoRARank int `toml:"lora_rank"`
	// Scale of LoRA adapters, times 1/LoRARank.
	LoRAAlpha float64 `toml:"lora_alpha"`
}

// DTypes lists the values of Settings.DType.
func DTypes() []string { return []string{"auto", "float32", "bfloat16"} }

// Default returns ranks that the python3 of this machine runs.
func Default() Settings {
	return Settings{Python: "python3", DType: DTypes()[0], Mode: wire.Auto, LoRAAlpha: 32}
}

// Validate reports all faults of s together, each beginning with its key.
func (s *Settings) Validate() error {
	var faults []error
	expect := func(ok bool, key string, value any, expected string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s is %v, expected %s", key, value, expected))
		}
	}
	quoted := func(s string) string { return fmt.Sprintf("%q", s) }
	expect(slices.Contains(DTypes(), s.DType), "dtype", quoted(s.DType), `"auto", "float32" or "bfloat16"`)
	expect(slices.Contains([]string{wire.Auto, wire.Free, wire.Lockstep}, s.Mode), "mode", quoted(s.Mode), `"auto", "free" or "lockstep"`)
	expect(s.LoRARank >= 0, "lora_rank", s.LoRARank, "0 or more")
	expect(s.LoRAAlpha > 0 && s.LoRAAlpha <= math.MaxFloat32, "lora_alpha", s.LoRAAlpha, "more than 0")
	if s.Listen == "" {
		expect(s.Python != "", "python", quoted(s.Python), "a Python or torch.listen")
		return errors.Join(faults...)
	}
	_, _, err := net.SplitHostPort(s.Listen)
	expect(err == nil, "listen", quoted(s.Listen), `an address such as "0.0.0.0:7100"`)
	expect(s.TokenFile != "", "token_file", quoted(s.TokenFile), "a file if listen is set")
	return errors.Join(faults...)
}

package parallel

import (
	"errors"
	"fmt"
)

// Settings sets the mesh of ranks that train: goroutines of one process, or processes that torchrun,
// Slurm or mpirun started.
type Settings struct {
	// Number of data-parallel replicas.
	DP int `toml:"dp" unit:"ranks"`
	// Number of ranks that share each layer.
	TP int `toml:"tp" unit:"ranks"`
	// Number of pipeline stages.
	PP int `toml:"pp" unit:"ranks"`
	// How tensor ranks add partial sums: "exact" gives the bits of one rank; with "sum", an
	// ordinary all-reduce, the bits depend on TP and Sequence.
	Reduce string `toml:"reduce"`
	// Divide the rows of the residual stream among the tensor ranks, which saves activations.
	Sequence bool `toml:"sequence"`
	// ZeRO stage: 1 divides the optimizer's moments among replicas, 2 also the gradients of layers.
	// 0 keeps all on each.
	Zero int `toml:"zero"`
	// File with a token of at least 16 bytes, which all processes share.
	TokenFile string `toml:"token_file"`
}

// Values of Settings.Reduce.
const (
	Exact = "exact" // the bits of one rank
	Sum   = "sum"   // an ordinary all-reduce
)

const (
	maxAxis = 1024 // ranks on one axis
	maxZero = 2    // highest ZeRO stage
)

// Default returns the settings of one rank.
func Default() Settings { return Settings{DP: 1, TP: 1, PP: 1, Reduce: Exact} }

// Mesh returns the mesh of DP, TP and PP.
func (s *Settings) Mesh() Mesh { return Mesh{DP: s.DP, TP: s.TP, PP: s.PP} }

// Validate reports all faults, each beginning with its key.
func (s *Settings) Validate() error {
	var faults []error
	checkRange := func(key string, n, low, high int) {
		if n < low {
			faults = append(faults, fmt.Errorf("%s is %d, expected %d or more", key, n, low))
		} else if n > high {
			faults = append(faults, fmt.Errorf("%s is %d, expected %d at most", key, n, high))
		}
	}
	checkRange("dp", s.DP, 1, maxAxis)
	checkRange("tp", s.TP, 1, maxAxis)
	checkRange("pp", s.PP, 1, maxAxis)
	checkRange("zero", s.Zero, 0, maxZero)
	if s.Reduce != Exact && s.Reduce != Sum {
		faults = append(faults, fmt.Errorf("reduce is %q, expected %q or %q", s.Reduce, Exact, Sum))
	}
	return errors.Join(faults...)
}

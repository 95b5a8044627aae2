// Package torch trains on PyTorch ranks: it starts them or waits for them, and sends them micro-batches
// and updates.
//
// A Session is the trainer's side. Ranks compute log-probabilities, gradients and optimizer
// updates; the trainer computes the loss. Package backend/session decides which replica computes
// which micro-batch, and replaces all ranks when one fails. A group implements its interface Ranks with the
// protocol in PROTOCOL.md, of which package torch/wire has the messages.
//
// # Goroutines
//
// The goroutine that calls Session makes all decisions, and no other goroutine uses its fields. Each rank
// has a goroutine that reads frames into group.events and one that writes queued frames and beats. The
// listener has a goroutine that accepts connections, and one for each connection that has not become a
// rank. These goroutines only move frames and signal Session.Ready.
//
// # Ownership
//
// A frame in rank.frames is encoded memory that nobody changes; the ranks of a replica share it.
package torch

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/torch/wire"
)

// Config configures a session.
type Config struct {
	Listen string // address to listen on for ranks; empty means a free port of 127.0.0.1
	// Token is the secret that ranks must send to be accepted. A session that starts its ranks ignores it
	// and makes a new token for each start.
	Token string
	DP    int // number of replicas; 0 means 1
	TP    int // number of ranks per replica; 0 means 1

	// Python is the interpreter that starts the ranks on this machine. If it is empty, the
	// session waits for ranks that are started elsewhere, at the start and after a failure.
	Python  string
	Threads int // threads of each rank on CPUs; 0 divides the machine's threads among the ranks

	Model     string // folder of the starting weights
	State     string // checkpoint folder to resume from; empty for none
	Updates   int    // number of updates before State was written
	Reference string // folder of the reference's weights; empty for none
	Dir       string // folder shared with the ranks, for recovery points and the ranks' output

	Mode        string // wire.Auto, wire.Free or wire.Lockstep; empty means Auto
	DType       string // "auto", "float32" or "bfloat16"; empty means "auto"
	Recompute   bool   // whether the backward pass recomputes activations
	Temperature float64
	Optimizer   wire.Optimizer
	LoRA        wire.LoRA

	// Silence is the time without a message after which a rank counts as dead; 0 means 20 s.
	Silence   time.Duration
	Deadlines Deadlines

	Say  func(format string, args ...any) // prints notes, such as the address for ranks; may be nil
	Warn func(format string, args ...any) // prints faults after which the session continues; may be nil
	Rows func(rank int) trace.Track       // returns a rank's row of the trace; nil records nothing
}

// Deadlines limits how long the session waits for ranks. 0 means the default.
type Deadlines struct {
	Join time.Duration // for all ranks to connect; default 10 minutes
	Load time.Duration // to load models; default 30 minutes
	Pass time.Duration // for one pass of a micro-batch or an update; default 10 minutes
	File time.Duration // to write weights or state; default 30 minutes
}

// complete returns c with defaults filled in and paths made absolute, or an error if it is not valid.
func (c Config) complete() (Config, error) {
	c.DP = cmp.Or(c.DP, 1)
	c.TP = cmp.Or(c.TP, 1)
	c.Mode = cmp.Or(c.Mode, wire.Auto)
	c.DType = cmp.Or(c.DType, "auto")
	c.Silence = cmp.Or(c.Silence, 20*time.Second)
	d := &c.Deadlines
	d.Join = cmp.Or(d.Join, 10*time.Minute)
	d.Load = cmp.Or(d.Load, 30*time.Minute)
	d.Pass = cmp.Or(d.Pass, 10*time.Minute)
	d.File = cmp.Or(d.File, 30*time.Minute)
	for _, printer := range []*func(string, ...any){&c.Say, &c.Warn} {
		if *printer == nil {
			*printer = func(string, ...any) {}
		}
	}
	if c.Rows == nil {
		c.Rows = func(int) trace.Track { return trace.Track{} }
	}
	for _, folder := range []*string{&c.Model, &c.State, &c.Reference, &c.Dir} { // for ranks in other folders
		if err := absolute(folder); err != nil {
			return c, err
		}
	}
	return c, c.validate()
}

// absolute makes a path absolute unless it is empty.
func absolute(path *string) (err error) {
	if *path != "" {
		*path, err = filepath.Abs(*path)
	}
	return err
}

// validate reports all faults of a complete configuration.
func (c *Config) validate() error {
	var faults []error
	if err := c.mesh().Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.Token == "" && c.Python == "" {
		faults = append(faults, errors.New("token is empty, expected the one that ranks send"))
	}
	if c.Model == "" || c.Dir == "" {
		faults = append(faults, fmt.Errorf("model is %q and dir %q, expected folders", c.Model, c.Dir))
	}
	return errors.Join(faults...)
}

func (c *Config) mesh() parallel.Mesh { return parallel.Mesh{DP: c.DP, TP: c.TP, PP: 1} }

// recovery returns the folder of the session's recovery points.
func (c *Config) recovery() string { return filepath.Join(c.Dir, "recovery") }

// world returns the number of ranks.
func (c *Config) world() int { return c.DP * c.TP }

package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/wire"
)

// rank is one rank. It repeats a micro-batch's forward pass before its backward pass.
type rank struct {
	ranks         *Ranks
	start, number int
	group         *group
	conn          net.Conn
	frames        chan wire.Frame
	cancel        context.CancelFunc
	sending       sync.Mutex
	quiet         atomic.Bool // sends no beats

	setup                            wire.Welcome
	dev                              npu.Device
	tape                             *model.Tape
	policy, reference, first, second *model.Weights
	gradients                        *model.Gradients
	opt                              *optim.AdamW
	layouts                          map[int64]*attention.Layout // nil if empty
}

// work handles messages until one of them ends the rank.
func (r *rank) work(ctx context.Context) error {
	hello := wire.Hello{Token: r.ranks.Token, Rank: r.number, World: r.ranks.World, Host: "fake", PID: os.Getpid(),
		Device: "cpu"}
	if err := r.send(hello, wire.Body{}); err != nil {
		return errDied
	}
	for {
		f, fault, err := r.next(ctx)
		if err != nil {
			return err
		}
		m, body, err := r.handle(ctx, &f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Kind, err)
		}
		if m == nil {
			continue
		}
		if fault == Lie {
			m = r.lie(m)
		}
		if err := r.send(m, body); err != nil {
			return errDied
		}
	}
}

// lie returns another answer.
func (r *rank) lie(m wire.Message) wire.Message {
	if r.ranks.Lie != nil {
		return r.ranks.Lie(m)
	}
	switch m := m.(type) {
	case wire.Logprobs:
		m.ID++
		return m
	case wire.Passed:
		m.ID += 2
		return m
	case wire.Stepped:
		m.Update++
		return m
	}
	return wire.Beat{}
}

// answers reports whether the rank is the first of its replica.
func (r *rank) answers() bool { return r.number%r.setup.TP == 0 }

// handle handles a message and returns the answer, nil for none.
func (r *rank) handle(ctx context.Context, f *wire.Frame) (wire.Message, wire.Body, error) {
	var none wire.Body
	switch f.Kind {
	case "welcome":
		if err := f.Decode(&r.setup); err != nil {
			return nil, none, err
		}
		m, err := r.load()
		return m, none, err
	case "forward":
		return r.forward(f)
	case "backward":
		return r.backward(f)
	case "score":
		return r.score(f)
	case "discard":
		clear(r.layouts)
		r.gradients.Zero()
		return nil, none, nil
	case "step":
		m, err := r.step(ctx, f)
		return m, none, err
	case "write":
		m, err := r.write(f)
		return m, none, err
	case "end":
		return nil, none, errEnd
	case "refused":
		var m wire.Refused
		_ = f.Decode(&m) // for the message only
		return nil, none, errors.New(m.Error)
	}
	return nil, none, fmt.Errorf("kind is %q, expected one of the protocol", f.Kind)
}

// load loads the models.
func (r *rank) load() (wire.Message, error) {
	cfg, err := arch.ReadConfig(r.setup.Model)
	if err != nil {
		return nil, err
	}
	if r.dev, err = cpu.Open(npu.FP32, 1); err != nil {
		return nil, err
	}
	r.tape = model.NewTape(r.dev, cfg)
	r.layouts = map[int64]*attention.Layout{}
	for _, w := range []**model.Weights{&r.policy, &r.first, &r.second} {
		if *w, err = model.NewWeights(r.dev, cfg, npu.Weights); err != nil {
			return nil, err
		}
	}
	if r.gradients, err = model.NewGradients(r.dev, cfg); err != nil {
		return nil, err
	}
	if err := r.readState(); err != nil {
		return nil, err
	}
	oc := optim.Config{Schedule: optim.Constant, Beta2: r.setup.Optimizer.Beta2,
		WeightDecay: r.setup.Optimizer.WeightDecay}
	if r.opt, err = optim.NewAdamW(oc); err != nil {
		return nil, err
	}
	r.opt.Updates = r.setup.Updates
	mode := r.setup.Mode
	if mode == wire.Auto {
		mode = r.ranks.Mode
	}
	if mode == "" {
		mode = wire.Free
	}
	ready := wire.Ready{Parameters: r.policy.Bytes() / 4, Trained: r.policy.Bytes() / 4, Vocabulary: cfg.VocabSize,
		MaxPositions: cfg.MaxPositions, Packed: true, Attention: "easyrl", Mode: mode, DType: "float32",
		Memory: r.memory(),
		FLOPs:  wire.FLOPs{Row: 6, Target: 4, Key: 2}}
	if r.ranks.Ready != nil {
		r.ranks.Ready(r.number, &ready)
	}
	return ready, nil
}

func (r *rank) memory() wire.Memory {
	n := r.policy.Bytes()
	return wire.Memory{Weights: n, Gradients: n, Optimizer: 2 * n, Activations: r.dev.Allocated()[npu.Activations]}
}

// readState reads weights and moments.
func (r *rank) readState() (err error) {
	if r.setup.Reference != "" {
		if r.reference, err = model.NewWeights(r.dev, r.policy.Config, npu.Weights); err != nil {
			return err
		}
		if err = r.reference.Load(r.setup.Reference); err != nil {
			return err
		}
	}
	if r.setup.State == "" {
		return r.policy.Load(r.setup.Model)
	}
	if err := r.policy.Load(r.setup.State); err != nil {
		return err
	}
	f, err := checkpoint.OpenFile(filepath.Join(r.setup.State, "trainer", "optimizer.safetensors"))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	return errors.Join(r.first.LoadFrom("first.", f), r.second.LoadFrom("second.", f))
}

// close frees everything.
func (r *rank) close() {
	if r.dev == nil {
		return
	}
	r.tape.Close()
	for _, w := range []*model.Weights{r.policy, r.reference, r.first, r.second} {
		if w != nil {
			w.Free()
		}
	}
	_ = r.dev.Close() // reports leaks, after a failed load
}

func (r *rank) forward(f *wire.Frame) (wire.Message, wire.Body, error) {
	var m wire.Forward
	var body wire.Body
	if err := f.Decode(&m); err != nil {
		return nil, body, err
	}
	if _, known := r.layouts[m.ID]; known {
		return nil, body, fmt.Errorf("id %d is in flight", m.ID)
	}
	r.layouts[m.ID] = nil
	answer := wire.Logprobs{ID: m.ID, Seconds: 1e-6}
	if !f.Empty() {
		l, err := f.Layout()
		if err != nil {
			return nil, body, err
		}
		cutLeaves(l)
		r.layouts[m.ID] = l
		if err := r.fit(); err != nil {
			return nil, body, err
		}
		if err := r.logprobs(l, &body); err != nil {
			return nil, body, err
		}
	}
	if !r.answers() {
		return nil, body, nil
	}
	return answer, body, nil
}

// fit returns a fullError if the rank holds more rows than it has memory for.
func (r *rank) fit() error {
	if r.ranks.Memory == nil {
		return nil
	}
	full := fullError{maxRows: r.ranks.Memory(r.start)}
	for id, l := range r.layouts {
		full.held = append(full.held, id)
		if l != nil {
			full.rows += l.Rows()
		}
	}
	if full.maxRows == 0 || full.rows <= full.maxRows {
		return nil
	}
	return full
}

func (r *rank) logprobs(l *attention.Layout, body *wire.Body) error {
	policy := make([]float32, len(l.Targets))
	entropy := make([]float32, len(l.Targets))
	if r.reference != nil {
		if err := r.run(r.reference, l, float32(r.setup.Temperature), false, policy, entropy); err != nil {
			return err
		}
		body.AddFloat32s("reference", policy)
	}
	if err := r.run(r.policy, l, float32(r.setup.Temperature), false, policy, entropy); err != nil {
		return err
	}
	body.AddFloat32s("policy", policy)
	body.AddFloat32s("entropy", entropy)
	return nil
}

func (r *rank) backward(f *wire.Frame) (wire.Message, wire.Body, error) {
	var m wire.Backward
	var none wire.Body
	if err := f.Decode(&m); err != nil {
		return nil, none, err
	}
	l, known := r.layouts[m.ID]
	if !known {
		return nil, none, fmt.Errorf("id %d is not in flight", m.ID)
	}
	delete(r.layouts, m.ID)
	if (l == nil) != f.Empty() {
		return nil, none, fmt.Errorf("id %d: gradient is empty: %v, expected %v", m.ID, f.Empty(), l == nil)
	}
	if l != nil {
		gradient := f.Float32s("gradient")
		scratch := make([]float32, len(l.Targets))
		if len(gradient) != len(l.Targets) {
			return nil, none, fmt.Errorf("id %d: %d derivatives, expected %d", m.ID, len(gradient), len(l.Targets))
		}
		if err := r.run(r.policy, l, float32(r.setup.Temperature), true, scratch,
			make([]float32, len(l.Targets))); err != nil {
			return nil, none, err
		}
		if err := r.tape.Backward(r.policy, r.gradients, gradient, r.ranks.Format); err != nil {
			return nil, none, err
		}
	}
	if !r.answers() {
		return nil, none, nil
	}
	return wire.Passed{ID: m.ID, Seconds: 1e-6}, none, nil
}

func (r *rank) score(f *wire.Frame) (wire.Message, wire.Body, error) {
	var m wire.Score
	var body wire.Body
	err := f.Decode(&m)
	if err != nil || r.number > 0 {
		return nil, body, err
	}
	l, err := f.Layout()
	if err != nil {
		return nil, body, err
	}
	r.layouts[m.ID] = l
	err = r.fit()
	delete(r.layouts, m.ID)
	if err != nil {
		return nil, body, err
	}
	w := r.policy
	if m.Model != "" {
		if w, err = r.weights(m.Model); err != nil {
			return nil, body, err
		}
		defer w.Free()
	}
	policy := make([]float32, len(l.Targets))
	if err := r.run(w, l, float32(m.Temperature), false, policy, make([]float32, len(policy))); err != nil {
		return nil, body, err
	}
	body.AddFloat32s("policy", policy)
	return wire.Logprobs{ID: m.ID}, body, nil
}

// run runs the tape and waits.
func (r *rank) run(
	w *model.Weights, l *attention.Layout, temperature float32, keep bool, logp, entropy []float32,
) error {
	if err := r.tape.Forward(w, l, temperature, keep, logp, entropy); err != nil {
		return err
	}
	return r.tape.Wait()
}

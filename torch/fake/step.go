package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/wire"
)

// step adds the gradients of all replicas and updates the policy.
func (r *rank) step(ctx context.Context, f *wire.Frame) (wire.Message, error) {
	var m wire.Step
	if err := f.Decode(&m); err != nil {
		return nil, err
	}
	if len(r.layouts) > 0 {
		return nil, fmt.Errorf("%d micro-batches without backward", len(r.layouts))
	}
	if m.Update != r.opt.Updates+1 {
		return nil, fmt.Errorf("update is %d, expected %d", m.Update, r.opt.Updates+1)
	}
	defer r.gradients.Zero()
	if err := r.reduce(ctx); err != nil {
		return nil, err
	}
	params := make([]optim.Param, len(r.policy.Params))
	for i := range params {
		p := &r.policy.Params[i]
		params[i] = optim.Param{
			Name: p.Name, Terms: max(1, p.Terms),
			Update: npu.Update{
				W: p.Buffer, G: r.gradients.Params[i],
				M: r.first.Params[i].Buffer, V: r.second.Params[i].Buffer, Decay: p.Decay(),
			},
		}
	}
	answer := wire.Stepped{Update: m.Update, WeightsFinite: true, Memory: r.memory(), Seconds: 1e-6}
	norm, err := optim.GradNorm(r.dev, params, r.ranks.Format)
	if errors.Is(err, optim.ErrNonFinite) {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	norm *= m.Scale
	if err := r.opt.Step(r.dev, params, m.Scale*optim.ClipScale(norm, m.Clip)/float64(r.ranks.Format.Scale),
		m.LR); err != nil {
		return nil, err
	}
	answer.Norm, answer.Finite = &norm, true
	err = r.policy.CheckFinite()
	answer.WeightsFinite = err == nil
	if errors.Is(err, model.ErrNotFinite) {
		err = nil
	}
	return answer, err
}

// reduce replaces the gradients by their sum over all replicas.
func (r *rank) reduce(ctx context.Context) error {
	if r.ranks.World == 1 {
		return nil
	}
	var values []int64 // the CPU's buffers are host memory
	for _, s := range r.gradients.Params {
		values = append(append(values, s.Int64s()...), s.Mark.Int64s()...)
	}
	if !r.answers() {
		values = nil // the same as on the replica's first rank
	}
	sum, err := r.group.add(ctx, r.ranks.World, r.number, values)
	if err != nil {
		return err
	}
	for _, s := range r.gradients.Params {
		sum = sum[copy(s.Int64s(), sum):]
		sum = sum[copy(s.Mark.Int64s(), sum):]
	}
	return nil
}

// cutLeaves makes each tree of a layout a leaf, as the trainer does with groups.
func cutLeaves(l *attention.Layout) {
	for _, s := range l.Segments {
		if s.Parent < 0 && s.Start > 0 && !slices.Contains(l.Leaves, s.Start) {
			l.Leaves = append(l.Leaves, s.Start)
		}
	}
	l.EndLeaf()
}

// write writes files on rank 0.
func (r *rank) write(f *wire.Frame) (wire.Message, error) {
	var m wire.Write
	err := f.Decode(&m)
	if err != nil || r.number > 0 {
		return wire.Written{}, err
	}
	if m.What == wire.Adapter {
		return wire.Written{}, writeAdapter(r.policy, m.Folder)
	}
	if err := checkpoint.WriteFile(filepath.Join(m.Folder, "model.safetensors"), r.policy.Sources(), nil); err != nil {
		return nil, err
	}
	if m.What != wire.State {
		return wire.Written{}, nil
	}
	own := filepath.Join(m.Folder, "trainer")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, err
	}
	moments := append(prefixed("first.", r.first), prefixed("second.", r.second)...)
	return wire.Written{}, checkpoint.WriteFile(filepath.Join(own, "optimizer.safetensors"), moments, nil)
}

func prefixed(prefix string, w *model.Weights) []checkpoint.Source {
	sources := w.Sources()
	for i := range sources {
		sources[i].Name = prefix + sources[i].Name
	}
	return sources
}

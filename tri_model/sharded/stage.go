package sharded

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// forward runs the models' passes of the next micro-batch. The last stage answers with the
// log-probabilities. Other stages post their output to the stage after.
func (w *worker) forward(ctx context.Context) error {
	span := w.track.Begin(trace.NoStep, "forward")
	q := &w.queue
	batch := q.batches[0]
	q.batches = q.batches[1:]
	q.announced = max(0, q.announced-1) // 0 on a rank that does not decide
	var in []float32
	if !w.shape.First() {
		in = q.inputs[0]
		q.inputs = q.inputs[1:]
	}
	t := w.tape()
	w.inFlight = append(w.inFlight, microBatch{t, w.boundary(batch.layout)})
	passes := w.models.Passes(batch.sampler)
	logp, entropy, out, err := w.runPasses(t, batch.layout, passes, in, true)
	span.End() // before post, so that the spans of one micro-batch in several stages do not overlap
	if err != nil {
		return err
	}
	if !w.shape.Last() {
		return w.post(ctx, 1, out)
	}
	if !w.answers() {
		return nil
	}
	return w.link.send(ctx, answer{Action: forward, Outputs: w.models.Outputs(batch.sampler, passes, logp, entropy)})
}

// answers reports whether the rank answers for its stage: the first tensor rank does, since all have
// the same values.
func (w *worker) answers() bool { return w.tensor == nil || w.tensor.Rank() == 0 }

// boundary returns the number of values that the rank exchanges with the stage before or after it for a
// layout, in one pass: its own rows times the hidden size.
func (w *worker) boundary(l *attention.Layout) int {
	return model.OwnRows(w.shape, l) * w.shape.HiddenSize
}

// runPasses runs passes over a layout. in comes from the stage before and out is for the stage after, both
// with shape [passes, rows, hidden size], where rows are the rank's own. The first stage has no in and the
// last no out. out is fresh memory, so the caller may post it. trained means that a backward pass may
// follow. logp has a row for each pass and a column for each target, like entropy; both are 0 except in
// the last stage.
func (w *worker) runPasses(
	t *model.Tape, l *attention.Layout, passes []trimodel.Pass, in []float32, trained bool,
) (logp [][]float32, entropy, out []float32, err error) {
	if err := t.Load(l, trained); err != nil {
		return nil, nil, nil, err
	}
	width := w.boundary(l)
	if !w.shape.Last() {
		out = make([]float32, len(passes)*width)
	}
	logp = make([][]float32, len(passes))
	entropy = make([]float32, len(l.Targets))
	for i, p := range passes {
		if !w.shape.First() {
			t.In = in[i*width : (i+1)*width]
		}
		if !w.shape.Last() {
			t.Out = out[i*width : (i+1)*width]
		}
		logp[i] = make([]float32, len(entropy))
		if err := w.models.Run(t, p, logp[i], entropy); err != nil {
			return nil, nil, nil, err
		}
		if err := t.Wait(); err != nil {
			return nil, nil, nil, err
		}
	}
	return logp, entropy, out, nil
}

// backward runs the backward pass of the oldest micro-batch in flight. The first stage answers. Other
// stages post the gradient of their input to the stage before.
func (w *worker) backward(ctx context.Context) error {
	span := w.track.Begin(trace.NoStep, "backward")
	gradient := w.queue.derivatives[0]
	w.queue.derivatives = w.queue.derivatives[1:]
	m := w.inFlight[0]
	w.inFlight = w.inFlight[1:]
	t := m.tape
	if !w.shape.First() {
		t.Out = make([]float32, m.width)
	}
	if !w.shape.Last() {
		t.In = gradient
	}
	err := w.models.Backward(t, backend.Values{backend.Policy: gradient})
	if err == nil {
		err = t.Wait()
	}
	span.End()
	if err != nil {
		return err
	}
	w.idleTapes = append(w.idleTapes, t)
	if !w.shape.First() {
		return w.post(ctx, -1, t.Out)
	}
	if !w.answers() {
		return nil
	}
	return w.link.send(ctx, answer{Action: derivative})
}

// tape takes an idle tape, or makes one if there is none.
func (w *worker) tape() *model.Tape {
	if n := len(w.idleTapes); n > 0 {
		t := w.idleTapes[n-1]
		w.idleTapes = w.idleTapes[:n-1]
		return t
	}
	t := model.NewTape(w.dev, w.shape)
	t.Recompute = w.setup.Models.Recompute
	if w.carry != nil {
		t.Divide(w.carry)
	}
	return t
}

// post sends values to the stage after this one (offset 1) or before it (-1), without waiting for that
// stage, unless maxPosts messages are under way. The message owns the values, so the caller must not use
// them afterwards.
func (w *worker) post(ctx context.Context, offset int, values []float32) error {
	w.posts = append(w.posts, parallel.Post(ctx, w.stages, w.stages.Rank()+offset, values))
	return w.awaitPosts(maxPosts)
}

// score runs the command score.
func (w *worker) score(ctx context.Context, c *command) error {
	defer w.track.Begin(trace.NoStep, "score").End()
	var in []float32
	if !w.shape.First() {
		in = make([]float32, w.boundary(c.Layout))
		if err := parallel.Recv(ctx, w.stages, w.stages.Rank()-1, in); err != nil {
			return err
		}
	}
	t := w.tape()
	defer func() { w.idleTapes = append(w.idleTapes, t) }()
	weights := w.models.Policy.Weights
	if c.Version != 0 {
		if weights = w.models.Version(c.Version); weights == nil {
			return fmt.Errorf("score: version %d is not held", c.Version)
		}
	}
	pass := trimodel.Pass{Name: "score", Weights: weights, Temperature: c.Temperature}
	logp, _, out, err := w.runPasses(t, c.Layout, []trimodel.Pass{pass}, in, false)
	if err != nil {
		return err
	}
	if !w.shape.Last() {
		return w.post(ctx, 1, out)
	}
	if !w.answers() {
		return nil
	}
	outputs := backend.Outputs{Values: backend.Values{backend.Policy: logp[0]}}
	return w.link.send(ctx, answer{Action: score, Outputs: outputs})
}

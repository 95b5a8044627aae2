package sharded

import (
	"context"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// forward runs the models' passes of the next micro-batch. The last stage answers with the
// log-probabilities, and another one sends its output on.
func (w *worker) forward(ctx context.Context) error {
	span := w.track.Begin(trace.NoStep, "forward")
	q := &w.queue
	layout := q.layouts[0]
	q.layouts = q.layouts[1:]
	q.announced = max(0, q.announced-1)
	var in []float32
	if !w.shape.First() {
		in, q.inputs = q.inputs[0], q.inputs[1:]
	}
	t := w.tape()
	w.flight = append(w.flight, flying{t, model.OwnRows(w.shape, layout) * w.shape.HiddenSize})
	passes := w.models.Passes()
	logp, entropy, out, err := w.run(t, layout, passes, in, true)
	span.End() // others start with what is sent next
	if err != nil {
		return err
	}
	if !w.shape.Last() {
		return w.post(ctx, 1, out)
	}
	if w.tensor != nil && w.tensor.Rank() > 0 {
		return nil
	}
	return w.link.send(ctx, answer{Action: forward, Logp: w.models.Logprobs(logp, entropy)})
}

// run runs passes over a layout. in and out hold [passes, T, D] values of the stage before and
// for the stage after.
func (w *worker) run(t *model.Tape, l *attention.Layout, passes []trimodel.Pass, in []float32, trained bool) (logp [][]float32, entropy, out []float32, err error) {
	if err := t.Load(l, trained); err != nil {
		return nil, nil, nil, err
	}
	width := model.OwnRows(w.shape, l) * w.shape.HiddenSize
	if !w.shape.Last() {
		out = make([]float32, len(passes)*width)
	}
	logp, entropy = make([][]float32, len(passes)), make([]float32, len(l.Targets))
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

// backward runs the backward pass of the oldest micro-batch in flight. The first stage, where
// it ends, answers.
func (w *worker) backward(ctx context.Context) error {
	span := w.track.Begin(trace.NoStep, "backward")
	gradient := w.queue.derivatives[0]
	w.queue.derivatives = w.queue.derivatives[1:]
	m := w.flight[0]
	w.flight = w.flight[1:]
	t := m.tape
	if !w.shape.First() {
		t.Out = make([]float32, m.width)
	}
	if !w.shape.Last() {
		t.In = gradient
	}
	err := w.models.Backward(t, gradient)
	if err == nil {
		err = t.Wait()
	}
	span.End()
	if err != nil {
		return err
	}
	w.idle = append(w.idle, t)
	if !w.shape.First() {
		return w.post(ctx, -1, t.Out)
	}
	if w.tensor != nil && w.tensor.Rank() > 0 {
		return nil
	}
	return w.link.send(ctx, answer{Action: derivative})
}

// tape returns a tape without a micro-batch in flight.
func (w *worker) tape() *model.Tape {
	if n := len(w.idle); n > 0 {
		t := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return t
	}
	t := model.NewTape(w.dev, w.shape)
	t.Recompute = w.setup.Models.Recompute
	if w.carry != nil {
		t.Divide(w.carry)
	}
	return t
}

// post sends values to the stage after this one or before it, without waiting for it.
func (w *worker) post(ctx context.Context, by int, values []float32) error {
	w.posts = append(w.posts, parallel.Post(ctx, w.stages, w.stages.Rank()+by, values))
	return w.sent(2 * depth)
}

// score computes the log-probabilities of a layout under some weights; the last stage answers
// with them.
func (w *worker) score(ctx context.Context, c *command) error {
	defer w.track.Begin(trace.NoStep, "score").End()
	var in []float32
	if !w.shape.First() {
		in = make([]float32, model.OwnRows(w.shape, c.Layout)*w.shape.HiddenSize)
		if err := parallel.Recv(ctx, w.stages, w.stages.Rank()-1, in); err != nil {
			return err
		}
	}
	t := w.tape()
	defer func() { w.idle = append(w.idle, t) }()
	logp, _, out, err := w.run(t, c.Layout, []trimodel.Pass{{Name: "score", Weights: weights(w.models, c.Which), Temperature: c.Temperature}}, in, false)
	if err != nil {
		return err
	}
	if !w.shape.Last() {
		return w.post(ctx, 1, out)
	}
	if w.tensor != nil && w.tensor.Rank() > 0 {
		return nil
	}
	a := answer{Action: score}
	a.Logp.Policy = logp[0]
	return w.link.send(ctx, a)
}

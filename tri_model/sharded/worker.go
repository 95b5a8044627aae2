package sharded

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/pipeline"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded/lend"
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// worker is one rank: its part of the models, and its place in the mesh. Its goroutine makes all
// calls to the device.
type worker struct {
	rank   int
	setup  *Setup
	dev    npu.Device
	end    parallel.Transport
	link   link[answer, command]
	track  trace.Track
	shelf  *lend.Shelf
	models *trimodel.Set
	shape  *model.Config

	tensor, stages *parallel.Group // nil for one rank
	share          *reduce.Ranks
	receivers      []func() error // of share
	carry          *carry.Carry

	// decides is false if the rank follows the first tensor rank of its stage. In the last stage the
	// schedule leaves no choice, so each rank decides for itself.
	decides  bool
	schedule *pipeline.Stage
	commands chan command // in order
	inputs   chan []float32
	grads    chan []float32
	expect   struct{ inputs, grads chan int } // lengths of what the neighbours will send
	queue    struct {
		layouts     []*attention.Layout // whose forward pass has not begun
		inputs      [][]float32
		derivatives [][]float32 // or gradients, of the oldest micro-batches in flight
		other       []command   // that concern no micro-batch
		announced   int         // inputs that the schedule knows of
	}
	flight []flying // micro-batches in flight, in order
	idle   []*model.Tape
	posts  []*parallel.Pending

	ended ending // of the run
}

// flying is a micro-batch between its forward and its backward pass.
type flying struct {
	tape  *model.Tape
	width int // values of the rank between two stages
}

// limit is how long a rank waits for another one in a collective.
const limit = 0

// serve runs a rank until the trainer tells it to leave, ctx ends or something fails. If it fails,
// all ranks do. The trainer reads s, over values if that is not nil. The error is ErrStopped
// or ErrFailed if the trainer has stopped early or failed.
func serve(ctx context.Context, dev npu.Device, end parallel.Transport, l link[answer, command], s *lend.Shelf, values *parallel.Group, track trace.Track) error {
	working, cancel := context.WithCancel(ctx)
	w := &worker{rank: end.Rank(), dev: dev, end: end, link: l, shelf: s, track: track}
	err := caught(func() error { return w.serve(working, cancel, values) })
	if err != nil {
		end.Abort(err)
	}
	cancel()
	w.free()
	_ = l.send(ctx, answer{Action: leave, Fault: faultOf(err)}) // the trainer may be gone
	if err == nil {
		return w.ended.err()
	}
	return err
}

func (w *worker) serve(ctx context.Context, cancel context.CancelFunc, values *parallel.Group) error {
	c, err := w.link.recv(ctx)
	if err != nil {
		return err
	}
	if c.Action != setUp || c.Setup == nil {
		return fmt.Errorf("first message is %d, expected a setup", c.Action)
	}
	if err := w.open(ctx, c.Setup); err != nil {
		return err
	}
	var helpers, lending conc.WaitGroup
	defer lending.Wait()
	defer helpers.Wait()
	defer cancel()
	failed := make(chan error, 4+len(w.receivers))
	run := func(group *conc.WaitGroup, f func(context.Context) error) {
		group.Go(func() {
			if err := caught(func() error { return f(ctx) }); err != nil {
				w.end.Abort(err) // before others report that their context has ended
				failed <- err
				cancel()
			}
		})
	}
	run(&helpers, w.readCommands)
	if values != nil {
		run(&lending, func(ctx context.Context) error { return w.shelf.Serve(ctx, values) })
	}
	if at := w.setup.Mesh.Coord(w.rank); at.PP > 0 {
		run(&helpers, func(ctx context.Context) error { return w.receive(ctx, at.PP-1, w.expect.inputs, w.inputs) })
	}
	if !w.shape.Last() {
		run(&helpers, func(ctx context.Context) error {
			return w.receive(ctx, w.setup.Mesh.Coord(w.rank).PP+1, w.expect.grads, w.grads)
		})
	}
	for _, receive := range w.receivers {
		run(&helpers, func(context.Context) error { return receive() })
	}
	if err = caught(func() error { return w.work(ctx) }); err == nil {
		lending.Wait() // the trainer ends it with the rank
	} else {
		w.end.Abort(err)
	}
	select {
	case first := <-failed:
		if err != nil {
			err = first
		}
	default:
	}
	return err
}

// caught returns the error of f, or its panic as an error: a rank that panics must not leave the others
// waiting.
func caught(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

// open joins the groups and allocates the rank's part of the models.
func (w *worker) open(ctx context.Context, s *Setup) (err error) {
	w.setup = s
	mesh, at := s.Mesh, s.Mesh.Coord(w.rank)
	if w.shape, err = s.Shape.Shard(mesh, at, s.Sequence); err != nil {
		return err
	}
	join := func(name string, ranks []int) (g *parallel.Group) {
		if err == nil && len(ranks) > 1 {
			g, err = parallel.NewGroup(w.end, name, ranks, limit)
		}
		return g
	}
	all := make([]int, mesh.Size())
	for i := range all {
		all[i] = i
	}
	w.tensor, w.stages = join("tp", mesh.Group(w.rank, parallel.Tensor)), join("pp", mesh.Group(w.rank, parallel.Pipeline))
	w.share = &reduce.Ranks{Rank: w.rank, Mesh: mesh, Zero: s.Zero, Format: s.Models.Format, Shape: w.shape, Device: w.dev,
		World: join("world", all), Tensor: w.tensor, Data: join("dp", mesh.Group(w.rank, parallel.Data))}
	if s.Shape.Tied && mesh.PP > 1 && (w.shape.First() || w.shape.Last()) {
		ranks := mesh.Group(w.rank, parallel.Pipeline)
		w.share.Tied = join("tied", []int{ranks[0], ranks[len(ranks)-1]})
	}
	if err != nil {
		return err
	}
	if w.tensor != nil {
		w.carry = carry.New(ctx, w.dev, w.tensor)
		w.carry.Reduce = s.Reduce
	}
	take, err := w.share.Take(ctx, func() (*parallel.Group, error) {
		return parallel.NewGroup(w.end, "zero", mesh.Group(w.rank, parallel.Data), limit)
	})
	if err != nil {
		return err
	}
	weights, err := model.NewWeights(w.dev, w.shape, npu.Weights)
	if err != nil {
		return err
	}
	if w.models, err = trimodel.NewSet(w.dev, weights, s.Models, reduce.Pieces(weights.Params, mesh, at, s.Zero), take); err != nil {
		return err
	}
	w.shelf.Open(w.models)
	w.receivers = w.share.Open(w.models)
	w.models.SetTrack(w.track)
	w.schedule, w.decides = pipeline.NewStage(at.PP, mesh.PP), at.TP == 0 || w.shape.Last()
	w.commands, w.inputs, w.grads = make(chan command, depth), make(chan []float32, mesh.PP+1), make(chan []float32, mesh.PP+1)
	w.expect.inputs, w.expect.grads = make(chan int, mesh.PP+1), make(chan int, mesh.PP+1)
	return nil
}

// readCommands passes the trainer's commands on to work, and the lengths of what they make
// neighbours send.
func (w *worker) readCommands(ctx context.Context) error {
	for {
		c, err := w.link.recv(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // work has ended
			}
			return err
		}
		select {
		case w.commands <- c:
		case <-ctx.Done():
			return nil
		}
		if c.Action == leave {
			return nil
		}
	}
}

// receive passes what a neighbouring stage sends on to work.
func (w *worker) receive(ctx context.Context, stage int, lengths <-chan int, to chan<- []float32) error {
	for {
		select {
		case n := <-lengths:
			values := make([]float32, n)
			if err := parallel.Recv(ctx, w.stages, stage, values); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // work has ended
				}
				return err
			}
			to <- values
		case <-ctx.Done():
			return nil
		}
	}
}

// work does what the trainer asks and the schedule decides, until the trainer ends the rank.
func (w *worker) work(ctx context.Context) error {
	for {
		op, err := w.next(ctx)
		if err != nil {
			return err
		}
		switch op {
		case pipeline.Forward:
			err = w.forward(ctx)
		case pipeline.Backward:
			err = w.backward(ctx)
		case pipeline.Wait: // a command that concerns no micro-batch
			c := w.queue.other[0]
			w.queue.other = w.queue.other[1:]
			if c.Action == leave {
				if err := w.share.Leave(); err != nil {
					return err
				}
				w.ended = c.Ended
				return w.sent(0)
			}
			err = w.obey(ctx, &c)
		}
		if err != nil {
			return err
		}
	}
}

// next waits for something to do. Wait stands for the first of the other commands. One rank decides
// for all tensor ranks of a stage, because arrivals may look different to the others.
func (w *worker) next(ctx context.Context) (pipeline.Op, error) {
	if w.decides {
		op, err := w.decide(ctx)
		shared := w.tensor != nil && !w.shape.Last()
		for peer := 1; shared && err == nil && peer < w.tensor.Size(); peer++ {
			err = parallel.Send(ctx, w.tensor, peer, []byte{byte(op)})
		}
		return op, err
	}
	var told [1]byte
	if err := parallel.Recv(ctx, w.tensor, 0, told[:]); err != nil {
		return 0, err
	}
	want := pipeline.Op(told[0])
	for {
		switch {
		case want == pipeline.Forward && w.ready() > 0, want == pipeline.Backward && len(w.queue.derivatives) > 0, want == pipeline.Wait && len(w.queue.other) > 0:
			return want, nil
		}
		if err := w.await(ctx); err != nil {
			return 0, err
		}
	}
}

// ready returns the number of micro-batches whose forward pass can begin.
func (w *worker) ready() int {
	if w.shape.First() {
		return len(w.queue.layouts)
	}
	return min(len(w.queue.layouts), len(w.queue.inputs))
}

// decide waits until the schedule has an operation or, once all earlier micro-batches are done, until
// another command is queued.
func (w *worker) decide(ctx context.Context) (pipeline.Op, error) {
	for {
		for ; w.queue.announced < w.ready(); w.queue.announced++ {
			w.schedule.Input()
		}
		if op := w.schedule.Next(); op != pipeline.Wait {
			return op, nil
		}
		if len(w.queue.other) > 0 && len(w.queue.layouts)+len(w.flight) == 0 {
			return pipeline.Wait, nil
		}
		if err := w.await(ctx); err != nil {
			return 0, err
		}
	}
}

// await waits for an event and queues it.
func (w *worker) await(ctx context.Context) error {
	q := &w.queue
	select {
	case c := <-w.commands:
		switch c.Action {
		case forward:
			q.layouts = append(q.layouts, c.Layout)
			width := model.OwnRows(w.shape, c.Layout) * w.shape.HiddenSize
			if !w.shape.First() {
				w.expect.inputs <- len(w.models.Passes()) * width
			}
			if !w.shape.Last() {
				w.expect.grads <- width
			}
		case derivative:
			q.derivatives = append(q.derivatives, c.Values)
			if w.decides {
				w.schedule.Gradient()
			}
		default:
			q.other = append(q.other, c)
		}
	case values := <-w.inputs:
		q.inputs = append(q.inputs, values)
	case values := <-w.grads:
		q.derivatives = append(q.derivatives, values)
		if w.decides {
			w.schedule.Gradient()
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// sent waits until at most n messages to neighbouring stages are under way.
func (w *worker) sent(n int) error {
	for len(w.posts) > n {
		err := w.posts[0].Wait()
		w.posts = w.posts[1:]
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) free() {
	_ = w.sent(0)
	for _, m := range w.flight {
		m.tape.Close()
	}
	for _, t := range w.idle {
		t.Close()
	}
	_ = w.shelf.Close() // its queue has no work
	if w.models != nil {
		w.models.Close()
	}
}

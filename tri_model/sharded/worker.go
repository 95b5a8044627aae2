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
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// worker is one rank: its part of the models, and its place in the mesh.
//
// One goroutine, which runs work, makes all calls to the device and calls all collectives. After open,
// no other goroutine uses the fields, except snapshots, link and channels. Helper goroutines only
// receive: commands, messages of neighbouring stages, requests to snapshots and, with ZeRO-2, sums of
// gradients.
//
// inputs, grads and expect have room for all micro-batches that a replica may have in flight (see
// world.Forward). So neither a helper that sends to them nor await ever blocks.
type worker struct {
	rank      int
	setup     *Setup
	dev       npu.Device
	transport parallel.Transport
	link      link[answer, command]
	track     trace.Track
	snapshots *snapshots
	models    *trimodel.Set
	shape     *model.Config // shape of the rank's part of the decoder

	tensor, stages *parallel.Group // groups along these axes; nil for one rank
	share          *reduce.Ranks
	receivers      []func() error // functions that helpers run for share (see reduce.Ranks.Open)
	carry          *carry.Carry   // sums over tensor ranks; nil for one tensor rank

	// decides is false if the rank follows the first tensor rank of its stage. In the last stage the
	// schedule leaves no choice, so each rank decides for itself.
	decides  bool
	schedule *pipeline.Stage // used if the rank decides
	commands chan command    // from the trainer, in order
	inputs   chan []float32  // outputs of the stage before, one for each micro-batch
	grads    chan []float32  // gradients from the stage after, one for each micro-batch
	expect   struct {        // lengths of the next messages for inputs and grads
		inputs, grads chan int
	}
	queue     queue
	inFlight  []microBatch        // in order of their forward passes
	idleTapes []*model.Tape       // tapes without a micro-batch in flight
	posts     []*parallel.Pending // messages to neighbouring stages, in order

	ended ending // how the run ended; set by the command leave
}

// queue holds arrived commands and values that wait for the schedule. Values belong to micro-batches in
// the order of the commands, so they carry no number.
type queue struct {
	batches     []sampledBatch // micro-batches whose forward pass has not begun
	inputs      [][]float32    // inputs of the first of batches; none in the first stage
	derivatives [][]float32    // derivatives for the backward passes of the first of worker.inFlight
	other       []command      // commands that concern no micro-batch
	announced   int            // number of the first of batches that schedule.Input has counted
}

// sampledBatch is a micro-batch before its forward pass.
type sampledBatch struct {
	layout  *attention.Layout
	sampler int64 // version that sampled it; 0 for none
}

// microBatch is a micro-batch between its forward and its backward pass.
type microBatch struct {
	tape  *model.Tape
	width int // number of values of its input's gradient on this rank (see boundary)
}

// maxPosts limits the messages under way to neighbouring stages, and so the memory that they own. A limit
// above the number of micro-batches in flight never delays a stage.
const maxPosts = 2 * depth

// runWorker runs a rank until the trainer ends it, ctx ends or the rank fails, which fails all ranks. It
// takes ownership of s, but not of dev and transport. If values is not nil, rank 0 reads s over values.
// The result is nil after a complete run, ErrStopped or ErrFailed if the trainer ended the run for that
// reason, and otherwise the rank's error.
func runWorker(
	ctx context.Context, dev npu.Device, transport parallel.Transport, l link[answer, command],
	s *snapshots, values *parallel.Group, track trace.Track,
) error {
	working, cancel := context.WithCancel(ctx)
	w := &worker{rank: transport.Rank(), dev: dev, transport: transport, link: l, snapshots: s, track: track}
	err := recovered(func() error { return w.run(working, cancel, values) })
	if err != nil {
		transport.Abort(err)
	}
	cancel()
	w.free()
	_ = l.send(ctx, answer{Action: leave, Fault: faultOf(err)}) // the trainer may be gone
	if err == nil {
		return w.ended.err()
	}
	return err
}

// run opens the rank and runs work and the helpers. The goroutine that fails first aborts the transport
// before it cancels the others, so that all ranks report its failure and not an ended context.
func (w *worker) run(ctx context.Context, cancel context.CancelFunc, values *parallel.Group) error {
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
	var helpers, serving conc.WaitGroup
	defer serving.Wait()
	defer helpers.Wait()
	defer cancel()
	failed := make(chan error, 4+len(w.receivers)) // has room for one error of each helper
	start := func(group *conc.WaitGroup, f func(context.Context) error) {
		group.Go(func() {
			if err := recovered(func() error { return f(ctx) }); err != nil {
				w.transport.Abort(err)
				failed <- err
				cancel()
			}
		})
	}
	start(&helpers, w.readCommands)
	if values != nil {
		start(&serving, func(ctx context.Context) error { return w.snapshots.serve(ctx, values) })
	}
	stage := w.setup.Mesh.Coord(w.rank).PP
	if !w.shape.First() {
		start(&helpers, func(ctx context.Context) error { return w.receive(ctx, stage-1, w.expect.inputs, w.inputs) })
	}
	if !w.shape.Last() {
		start(&helpers, func(ctx context.Context) error { return w.receive(ctx, stage+1, w.expect.grads, w.grads) })
	}
	for _, receive := range w.receivers {
		start(&helpers, func(context.Context) error { return receive() })
	}
	err = recovered(func() error { return w.work(ctx) })
	if err == nil {
		serving.Wait() // returns, because the trainer ends serve before it sends leave
	} else {
		w.transport.Abort(err)
	}
	select {
	case first := <-failed:
		if err != nil {
			err = first // work's error follows from it
		}
	default:
	}
	return err
}

// recovered returns the error of f, or its panic as an error: a rank that panics must not leave the
// others waiting.
func recovered(f func() error) (err error) {
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
	mesh := s.Mesh
	at := mesh.Coord(w.rank)
	if w.shape, err = s.Shape.Shard(mesh, at, s.Sequence); err != nil {
		return err
	}
	if err := w.join(); err != nil {
		return err
	}
	if w.tensor != nil {
		w.carry = carry.New(ctx, w.dev, w.tensor)
		w.carry.Reduce = s.Reduce
	}
	take, err := w.share.Take(ctx, func() (*parallel.Group, error) {
		return parallel.NewGroup(w.transport, "zero", mesh.Group(w.rank, parallel.Data), noLimit)
	})
	if err != nil {
		return err
	}
	weights, err := model.NewWeights(w.dev, w.shape, npu.Weights)
	if err != nil {
		return err
	}
	pieces := reduce.Pieces(weights.Params, mesh, at, s.Zero)
	if w.models, err = trimodel.NewSet(w.dev, weights, s.Models, pieces, take); err != nil {
		return err
	}
	w.snapshots.open(w.models)
	w.receivers = w.share.Open(w.models.Policy)
	w.models.SetTrack(w.track)
	w.schedule = pipeline.NewStage(at.PP, mesh.PP)
	w.decides = at.TP == 0 || w.shape.Last()
	room := mesh.PP + 1 // a replica's max. micro-batches in flight
	w.commands = make(chan command, depth)
	w.inputs = make(chan []float32, room)
	w.grads = make(chan []float32, room)
	w.expect.inputs = make(chan int, room)
	w.expect.grads = make(chan int, room)
	return nil
}

// join makes the rank's groups. A group of one rank remains nil.
func (w *worker) join() error {
	var failed error
	newGroup := func(name string, ranks []int) *parallel.Group {
		if failed != nil || len(ranks) == 1 {
			return nil
		}
		g, err := parallel.NewGroup(w.transport, name, ranks, noLimit)
		failed = err
		return g
	}
	s := w.setup
	mesh := s.Mesh
	stages := mesh.Group(w.rank, parallel.Pipeline)
	w.tensor = newGroup("tp", mesh.Group(w.rank, parallel.Tensor))
	w.stages = newGroup("pp", stages)
	w.share = &reduce.Ranks{
		Rank: w.rank, Mesh: mesh, Zero: s.Zero, Format: s.Models.Format, Shape: w.shape, Device: w.dev,
		World: newGroup("world", firstRanks(mesh.Size())), Tensor: w.tensor,
		Data: newGroup("dp", mesh.Group(w.rank, parallel.Data)),
	}
	if s.Shape.Tied && mesh.PP > 1 && (w.shape.First() || w.shape.Last()) {
		w.share.Tied = newGroup("tied", []int{stages[0], stages[len(stages)-1]})
	}
	return failed
}

// readCommands forwards commands to w.commands, up to leave.
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

// receive forwards the messages of a neighbouring stage to the channel to, until ctx ends. It gets the
// length of each message from lengths. The receiver owns the values.
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

// work runs commands and micro-batches until the trainer ends the rank.
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
				return w.awaitPosts(0)
			}
			err = w.execute(ctx, &c)
		}
		if err != nil {
			return err
		}
	}
}

// next waits for the next operation. It returns Wait if the first of queue.other is to run, because the schedule
// then has no operation.
//
// The tensor ranks of a stage compute together, so all must run the same operation next, but commands
// and messages may reach them in different orders. So the first tensor rank decides and sends its
// decision to the others. They wait until everything that the operation needs has arrived.
func (w *worker) next(ctx context.Context) (pipeline.Op, error) {
	if w.decides {
		op, err := w.decide(ctx)
		hasFollowers := w.tensor != nil && !w.shape.Last()
		if !hasFollowers {
			return op, err
		}
		for peer := 1; err == nil && peer < w.tensor.Size(); peer++ {
			err = parallel.Send(ctx, w.tensor, peer, []byte{byte(op)})
		}
		return op, err
	}
	var decision [1]byte
	if err := parallel.Recv(ctx, w.tensor, 0, decision[:]); err != nil {
		return 0, err
	}
	op := pipeline.Op(decision[0])
	for !w.can(op) {
		if err := w.await(ctx); err != nil {
			return 0, err
		}
	}
	return op, nil
}

// can reports whether everything that an operation of next needs has arrived.
func (w *worker) can(op pipeline.Op) bool {
	switch op {
	case pipeline.Forward:
		return w.ready() > 0
	case pipeline.Backward:
		return len(w.queue.derivatives) > 0
	default:
		return len(w.queue.other) > 0
	}
}

// ready returns the number of micro-batches in the queue whose layout and input have arrived.
func (w *worker) ready() int {
	if w.shape.First() {
		return len(w.queue.batches)
	}
	return min(len(w.queue.batches), len(w.queue.inputs))
}

// decide waits until the schedule has an operation. If no micro-batch is queued or in flight, it also
// returns Wait as soon as another command is queued.
func (w *worker) decide(ctx context.Context) (pipeline.Op, error) {
	for {
		for ; w.queue.announced < w.ready(); w.queue.announced++ {
			w.schedule.Input()
		}
		if op := w.schedule.Next(); op != pipeline.Wait {
			return op, nil
		}
		if len(w.queue.other) > 0 && len(w.queue.batches)+len(w.inFlight) == 0 {
			return pipeline.Wait, nil
		}
		if err := w.await(ctx); err != nil {
			return 0, err
		}
	}
}

// await waits for a command or a message and queues it.
func (w *worker) await(ctx context.Context) error {
	q := &w.queue
	select {
	case c := <-w.commands:
		switch c.Action {
		case forward:
			q.batches = append(q.batches, sampledBatch{c.Layout, c.Version})
			width := w.boundary(c.Layout)
			if !w.shape.First() {
				w.expect.inputs <- len(w.models.Passes(c.Version)) * width
			}
			if !w.shape.Last() {
				w.expect.grads <- width
			}
		case derivative:
			w.queueDerivative(c.Values)
		default:
			q.other = append(q.other, c)
		}
	case values := <-w.inputs:
		q.inputs = append(q.inputs, values)
	case values := <-w.grads:
		w.queueDerivative(values)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// queueDerivative queues the derivative of the oldest micro-batch in flight that has none. In the last
// stage it is that of the loss, from the trainer; in other stages it comes from the stage after.
func (w *worker) queueDerivative(values []float32) {
	w.queue.derivatives = append(w.queue.derivatives, values)
	if w.decides {
		w.schedule.Gradient()
	}
}

// awaitPosts waits until no more than n messages to neighbouring stages are under way.
func (w *worker) awaitPosts(n int) error {
	for len(w.posts) > n {
		err := w.posts[0].Wait()
		w.posts = w.posts[1:]
		if err != nil {
			return err
		}
	}
	return nil
}

// free frees all memory. The snapshots must close before the models that they read.
func (w *worker) free() {
	_ = w.awaitPosts(0)
	for _, m := range w.inFlight {
		m.tape.Close()
	}
	for _, t := range w.idleTapes {
		t.Close()
	}
	_ = w.snapshots.close() // cannot lose work: its device queue is idle between reads
	if w.models != nil {
		w.models.Close()
	}
}

package reduce

import (
	"context"
	"sync"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// owners divides the sums of layers' gradients among replicas (ZeRO-2): each sum has one owner. A replica
// sends a layer's sums to their owners as soon as a micro-batch's backward pass has computed them. It
// uses no collective, because replicas have different numbers of micro-batches.
//
// The rank's own goroutine sends, and calls all methods except receive. For each other replica, one
// goroutine runs receive, which adds the sums that this replica owns. A message is the index of a layer,
// and the next one its sums. At the end of a step all replicas exchange marks in place of a layer. The
// messages of one replica arrive in order, so when its mark arrives, all its sums of the step are added.
type owners struct {
	w     *Ranks
	role  *trimodel.Trained
	ctx   context.Context     //nolint:containedctx // the rank's
	group *parallel.Group     // replicas
	spans [][][]span          // by layer and owner
	posts []*parallel.Pending // messages under way, in order
	err   error               // first error of take or a post; exchange returns it

	mu   sync.Mutex
	sums []int64       // the sums that this replica owns, of all layers; guarded by mu
	ends chan struct{} // gets a value for each mark that arrives; has room for a mark of each replica
}

// span is a range of a parameter's sums that one replica owns.
type span struct {
	param    int // index of the parameter
	from, to int // the range in the parameter's sums
	start    int // where the range begins in the owner's sums
}

// Marks in place of a layer's index.
const (
	stepEnds = -1 // no more sums of this step
	rankEnds = -2 // no more messages
)

// maxPosts limits the messages under way to other replicas, and with them the memory that they own.
const maxPosts = 32

// Take returns the function take for trimodel.NewSet, or nil without ZeRO-2. With ZeRO-2 it calls newGroup
// for a group of the replicas that nothing else uses. The caller then calls Open with the policy.
func (w *Ranks) Take(ctx context.Context, newGroup func() (*parallel.Group, error)) (take func(layer int), err error) {
	if w.Zero < 2 || w.Data == nil {
		return nil, nil
	}
	g, err := newGroup()
	if err != nil {
		return nil, err
	}
	w.owners = &owners{w: w, ctx: ctx, group: g, ends: make(chan struct{}, g.Size())}
	return w.owners.take, nil
}

// Open prepares for the sums of a role. The caller runs each of the receivers in a goroutine. They return
// when the other replicas leave, and none must be missing, or other replicas wait forever.
func (w *Ranks) Open(role *trimodel.Trained) (receivers []func() error) {
	if w.owners == nil {
		return nil
	}
	w.owners.open(role)
	for r := range w.Data.Size() {
		if r != w.Data.Rank() {
			receivers = append(receivers, func() error { return w.owners.receive(r) })
		}
	}
	return receivers
}

// EndStep waits for the sums that other replicas have sent in this step. All replicas must call EndStep, or
// all must call Sum, at the end of a step.
func (w *Ranks) EndStep(role *trimodel.Trained) error {
	if w.owners == nil {
		return nil
	}
	return w.owners.end(role)
}

// Leave ends the receivers of all replicas, which must call it too.
func (w *Ranks) Leave() error {
	if w.owners == nil {
		return nil
	}
	return w.owners.exchange(rankEnds)
}

// open divides the sums of a role.
func (o *owners) open(role *trimodel.Trained) {
	o.role = role
	ranks := o.group.Size()
	o.spans = make([][][]span, role.Weights.Config.Layers)
	for l := range o.spans {
		o.spans[l] = make([][]span, ranks)
	}
	for r := range ranks {
		total := 0
		for _, p := range role.Weights.Params.Pieces(r, ranks) {
			if p.Layer < 0 {
				continue
			}
			from, to := role.Weights.Span(&p)
			o.spans[p.Layer][r] = append(o.spans[p.Layer][r], span{param: p.Of, from: from, to: to, start: total})
			total += to - from
		}
		if r == o.group.Rank() {
			o.sums = make([]int64, total)
		}
	}
}

// take adds the sums of a layer over the tensor ranks that share them, and sends them to their owners.
// After an error it does nothing; exchange returns the error.
func (o *owners) take(layer int) {
	role := o.role
	for i := range role.Weights.Params {
		p := &role.Weights.Params[i]
		if o.err == nil && p.Layer == layer && o.w.Tensor != nil && p.Whole.Share == tensor.Summed {
			o.err = sum(o.ctx, o.w.Device, o.w.Tensor, role.Gradients.Params[i].Buffer)
		}
	}
	for r, spans := range o.spans[layer] {
		if o.err != nil || len(spans) == 0 {
			continue
		}
		values, err := o.values(role.Gradients, spans)
		switch {
		case err != nil:
			o.err = err
		case r == o.group.Rank():
			o.add(layer, values)
		default:
			o.post(r, []int64{int64(layer)})
			o.post(r, values)
		}
	}
}

// values copies the sums of spans, one after another, to memory that a message may own.
func (o *owners) values(g *model.Gradients, spans []span) (all []int64, err error) {
	for _, s := range spans {
		part, _ := npu.ReadInt64s(o.w.Device, g.Params[s.param].Slice(s.from, s.to).Buffer)
		if err := o.w.Device.Sync(); err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	return all, nil
}

// post sends values without waiting for the receiver, unless maxPosts messages are under way. The message
// owns the values.
func (o *owners) post(to int, values []int64) {
	o.posts = append(o.posts, parallel.Post(o.ctx, o.group, to, values))
	for len(o.posts) > maxPosts {
		o.awaitPost()
	}
}

// awaitPost waits until the oldest message is sent.
func (o *owners) awaitPost() {
	err := o.posts[0].Wait()
	o.posts = o.posts[1:]
	if o.err == nil {
		o.err = err
	}
}

// add adds values, the sums of a layer that this replica owns, to o.sums.
func (o *owners) add(layer int, values []int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans[layer][o.group.Rank()] {
		own := o.sums[s.start:][:s.to-s.from]
		for i := range own {
			own[i] += values[i]
		}
		values = values[len(own):]
	}
}

// receive adds the sums that a replica sends, until it sends rankEnds.
func (o *owners) receive(from int) error {
	for {
		var layer [1]int64
		if err := parallel.Recv(o.ctx, o.group, from, layer[:]); err != nil {
			return err
		}
		switch l := int(layer[0]); {
		case l == rankEnds:
			o.ends <- struct{}{}
			return nil
		case l == stepEnds:
			o.ends <- struct{}{}
		default:
			n := 0
			for _, s := range o.spans[l][o.group.Rank()] {
				n += s.to - s.from
			}
			values := make([]int64, n)
			if err := parallel.Recv(o.ctx, o.group, from, values); err != nil {
				return err
			}
			o.add(l, values)
		}
	}
}

// exchange sends all other replicas a mark and waits for theirs.
func (o *owners) exchange(mark int64) error {
	for r := range o.group.Size() {
		if r != o.group.Rank() {
			o.post(r, []int64{mark})
		}
	}
	for len(o.posts) > 0 {
		o.awaitPost()
	}
	for range o.group.Size() - 1 {
		select {
		case <-o.ends:
		case <-o.ctx.Done():
			return o.ctx.Err()
		}
	}
	return o.err
}

// end waits for the sums of all replicas, copies those that this replica owns to role.Own and clears them
// for the next step.
func (o *owners) end(role *trimodel.Trained) error {
	if err := o.exchange(stepEnds); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := 0
	for _, own := range role.Own {
		if own.IsNil() {
			continue
		}
		values, done := npu.ReadInt64s(o.w.Device, own.Buffer)
		if err := o.w.Device.Sync(); err != nil {
			return err
		}
		at += copy(values, o.sums[at:])
		done()
	}
	clear(o.sums)
	return nil
}

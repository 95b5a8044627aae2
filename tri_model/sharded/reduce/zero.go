package reduce

import (
	"context"
	"sync"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// owners divides the sums of layers' gradients among replicas (ZeRO-2). A replica sends a layer's sums
// to their owners as soon as a micro-batch's backward pass has computed them. It uses no collective,
// because replicas have different numbers of micro-batches.
//
// The rank's own goroutine sends and calls everything but receive. One goroutine for each other
// replica receives and adds. A step ends with an exchange of marks in place of a layer: since messages
// of one replica arrive in order, all its sums of the step are added when its mark arrives.
type owners struct {
	w     *Ranks
	set   *trimodel.Set
	ctx   context.Context     //nolint:containedctx // of the rank
	group *parallel.Group     // replicas
	spans [][][]span          // of each layer and replica
	posts []*parallel.Pending // under way, in order
	err   error               // the first one of take, for exchange

	mu   sync.Mutex
	sums []int64       // this replica's, of all layers; guarded by mu
	ends chan struct{} // a value for each mark that has arrived; has room for one of each replica
}

// span is a range of sums of a parameter, and its place among those of their owner.
type span struct{ of, from, to, at int }

// Marks in place of a layer.
const (
	stepEnds = -1 // no more sums of this step
	rankEnds = -2 // no more messages
)

// maxPosts limits the messages under way to other replicas, and with them the memory that they own.
const maxPosts = 32

// Take returns what gets the gradients of layers for trimodel.NewSet: nil without ZeRO-2. group has
// the replicas and a name of its own. Open follows.
func (w *Ranks) Take(ctx context.Context, group func() (*parallel.Group, error)) (take func(layer int), err error) {
	if w.Zero < 2 || w.Data == nil {
		return nil, nil
	}
	g, err := group()
	if err != nil {
		return nil, err
	}
	w.owners = &owners{w: w, ctx: ctx, group: g, ends: make(chan struct{}, g.Size())}
	return w.owners.take, nil
}

// Open prepares for the sums of a set. It returns functions that the caller runs until the other
// replicas leave.
func (w *Ranks) Open(set *trimodel.Set) (receivers []func() error) {
	if w.owners == nil {
		return nil
	}
	w.owners.open(set)
	for r := range w.Data.Size() {
		if r != w.Data.Rank() {
			receivers = append(receivers, func() error { return w.owners.receive(r) })
		}
	}
	return receivers
}

// EndStep waits for the sums that other replicas have sent in this step. All replicas must call it, or
// Sum, at the end of a step.
func (w *Ranks) EndStep(set *trimodel.Set) error {
	if w.owners == nil {
		return nil
	}
	return w.owners.end(set)
}

// Leave ends the receivers of all replicas, which must call it too.
func (w *Ranks) Leave() error {
	if w.owners == nil {
		return nil
	}
	return w.owners.exchange(rankEnds)
}

// open divides the sums of a set.
func (o *owners) open(set *trimodel.Set) {
	o.set = set
	ranks := o.group.Size()
	o.spans = make([][][]span, set.Policy.Config.Layers)
	for l := range o.spans {
		o.spans[l] = make([][]span, ranks)
	}
	for r := range ranks {
		at := 0
		for _, p := range set.Policy.Params.Pieces(r, ranks) {
			if p.Layer < 0 {
				continue
			}
			from, to := set.Policy.Span(&p)
			o.spans[p.Layer][r] = append(o.spans[p.Layer][r], span{p.Of, from, to, at})
			at += to - from
		}
		if r == o.group.Rank() {
			o.sums = make([]int64, at)
		}
	}
}

// take adds the sums of a layer over tensor ranks, where they share them, and sends them to their
// owners. exchange returns its failure.
func (o *owners) take(layer int) {
	set := o.set
	for i := range set.Policy.Params {
		p := &set.Policy.Params[i]
		if o.err == nil && p.Layer == layer && o.w.Tensor != nil && p.Whole.Share == tensor.Summed {
			o.err = sum(o.ctx, o.w.Device, o.w.Tensor, set.Gradients.Params[i].Buffer)
		}
	}
	for r, spans := range o.spans[layer] {
		if o.err != nil || len(spans) == 0 {
			continue
		}
		values, err := o.values(set.Gradients, spans)
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

// values copies some sums to memory that a message may own.
func (o *owners) values(g *model.Gradients, spans []span) (all []int64, err error) {
	for _, s := range spans {
		part, _ := integers(o.w.Device, g.Params[s.of].Slice(s.from, s.to).Buffer)
		if err := o.w.Device.Sync(); err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	return all, nil
}

// post sends values, which the message owns, without waiting for the replica, unless maxPosts are under
// way.
func (o *owners) post(to int, values []int64) {
	o.posts = append(o.posts, parallel.Post(o.ctx, o.group, to, values))
	for len(o.posts) > maxPosts {
		o.awaitPost()
	}
}

// awaitPost waits until the oldest message is sent.
func (o *owners) awaitPost() {
	err := o.posts[0].Wait()
	if o.posts = o.posts[1:]; o.err == nil {
		o.err = err
	}
}

// add adds a layer's sums to this replica's.
func (o *owners) add(layer int, values []int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans[layer][o.group.Rank()] {
		own := o.sums[s.at : s.at+s.to-s.from]
		for i := range own {
			own[i] += values[i]
		}
		values = values[len(own):]
	}
}

// receive adds what a replica sends, until its last mark.
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

// end waits for the sums of all replicas and moves this one's to set.Own.
func (o *owners) end(set *trimodel.Set) error {
	if err := o.exchange(stepEnds); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := 0
	for _, own := range set.Own {
		if own.IsNil() {
			continue
		}
		values, done := integers(o.w.Device, own.Buffer)
		if err := o.w.Device.Sync(); err != nil {
			return err
		}
		at += copy(values, o.sums[at:])
		done()
	}
	clear(o.sums)
	return nil
}

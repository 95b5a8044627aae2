// Package carry hands sums of products on from one tensor-parallel rank to the next.
//
// A product whose inner dimension is divided among ranks is a sum over ranks. An all-reduce would
// add partial sums in another order than one rank does. Instead rank 0 computes its part of each
// chain (see package npu), rank 1 continues the same chains, and so on, so that the bits are those
// of one rank. Ranks overlap because they work on different rows.
package carry

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// Carry connects one rank to its tensor group. The first failure makes all later calls do nothing;
// Err returns it. A Carry is not safe for concurrent use.
type Carry struct {
	dev   npu.Device
	group *parallel.Group
	// Reduce adds partial sums with an ordinary all-reduce, in the order of ranks. The bits
	// then depend on the number of ranks.
	Reduce bool

	ctx     context.Context //nolint:containedctx // of the run: kernels take none
	err     error
	staging []float32 // on a device whose memory the host cannot read
	posts   []*parallel.Pending
}

// New returns the carry of a rank of a tensor group, whose buffers are on dev. ctx ends its calls.
func New(ctx context.Context, dev npu.Device, group *parallel.Group) *Carry {
	return &Carry{dev: dev, group: group, ctx: ctx}
}

// Err returns the first failure. It is nil for a nil Carry.
func (c *Carry) Err() error {
	if c == nil {
		return nil
	}
	return c.err
}

// minChunk is the least number of rows that a rank hands on at a time, because kernels are slow on few
// rows.
const minChunk = 24

// Chunk returns the number of rows of t that a rank hands on at a time.
func Chunk(t, ranks int) int { return max(minChunk, (t+4*ranks-1)/(4*ranks)) }

// Rows computes y [t, width] = start + Σ products over the ranks, and gives it to all of them.
// start is [t, width] or none. product computes this rank's product for rows [lo, hi) of y,
// from 0 or, with add, from the values in y.
func (c *Carry) Rows(y, start npu.Buffer, t, width int, product func(lo, hi int, add bool)) {
	if c.Reduce {
		c.reduce(y, start, t, product)
		return
	}
	rank, last := c.group.Rank(), c.group.Size()-1
	host, chunk := c.host(y), Chunk(t, last+1)
	for lo := 0; lo < t && c.err == nil; lo += chunk {
		hi := min(t, lo+chunk)
		part := y.Slice(lo*width, hi*width)
		c.begin(part, start, lo*width, host)
		product(lo, hi, rank > 0 || !start.IsNil())
		c.post((rank+1)%(last+1), part, host[lo*width:hi*width])
	}
	for lo := 0; lo < t && c.err == nil && rank < last; lo += chunk { // the sums come around
		hi := min(t, lo+chunk)
		values := host[lo*width : hi*width]
		c.sent()
		c.recv((rank+last)%(last+1), values)
		if rank < last-1 {
			c.posts = append(c.posts, parallel.Post(c.ctx, c.group, rank+1, values))
		}
		c.upload(y.Slice(lo*width, hi*width), values)
	}
	for len(c.posts) > 0 {
		c.sent()
	}
}

// begin gives part, which starts at value at of the sum, the values that this rank's product
// continues.
func (c *Carry) begin(part, start npu.Buffer, at int, host []float32) {
	switch rank := c.group.Rank(); {
	case rank > 0:
		values := host[at : at+part.Len()]
		c.recv(rank-1, values)
		c.upload(part, values)
	case !start.IsNil() && start.Addr()+uintptr(4*at) != part.Addr():
		c.dev.Copy(part, start.Slice(at, at+part.Len()))
	}
}

// reduce computes what Rows does with an all-reduce.
func (c *Carry) reduce(y, start npu.Buffer, t int, product func(lo, hi int, add bool)) {
	first := c.group.Rank() == 0 && !start.IsNil()
	if first && y.Addr() != start.Addr() {
		c.dev.Copy(y, start)
	}
	product(0, t, first)
	host := c.host(y)
	c.download(host, y)
	if c.err == nil {
		c.err = c.group.AllReduceOrdered(c.ctx, host)
	}
	c.upload(y, host)
}

// Scatter is Rows with divided rows: rank i has rows bounds[i] to bounds[i+1] of start and gets those
// of the sum in y. started is false if there is no start. product computes rows [lo, hi) in a scratch
// buffer [t, width].
func (c *Carry) Scatter(y, start, scratch npu.Buffer, started bool, bounds []int, width int,
	product func(lo, hi int, add bool)) {
	rank, last := c.group.Rank(), c.group.Size()-1
	own, t := bounds[rank], bounds[last+1]
	if c.Reduce {
		c.reduceScatter(y, start, scratch, started, bounds, width, product)
		return
	}
	host, chunks := c.host(scratch), chunksOf(bounds, Chunk(t, last+1))
	mine := func(b npu.Buffer, k chunk) npu.Buffer { return b.Slice((k.lo-own)*width, (k.hi-own)*width) }
	values := func(k chunk) []float32 { return host[k.lo*width : k.hi*width] }
	if rank > 0 && started { // rank 0 begins the sums
		for _, k := range chunks {
			if k.owner == rank {
				c.send(0, mine(start, k))
			}
		}
	}
	for _, k := range chunks {
		part := scratch.Slice(k.lo*width, k.hi*width)
		switch {
		case rank > 0 || started && k.owner > 0:
			from := rank - 1
			if rank == 0 {
				from = k.owner
			}
			c.recv(from, values(k))
			c.upload(part, values(k))
		case started:
			c.dev.Copy(part, mine(start, k))
		}
		if c.err != nil {
			break
		}
		product(k.lo, k.hi, rank > 0 || started)
		switch {
		case rank < last:
			c.post(rank+1, part, values(k))
		case k.owner == last:
			c.dev.Copy(mine(y, k), part)
		default:
			c.post(k.owner, part, values(k))
		}
	}
	for len(c.posts) > 0 {
		c.sent()
	}
	if rank < last {
		for _, k := range chunks {
			if k.owner == rank {
				c.receive(last, mine(y, k))
			}
		}
	}
}

// chunk is a range of rows of one owner.
type chunk struct{ lo, hi, owner int }

// chunksOf cuts ranges of rows into chunks of at most n rows.
func chunksOf(bounds []int, n int) (all []chunk) {
	for owner := range len(bounds) - 1 {
		for lo := bounds[owner]; lo < bounds[owner+1]; lo += n {
			all = append(all, chunk{lo, min(lo+n, bounds[owner+1]), owner})
		}
	}
	return all
}

// reduceScatter computes what Scatter does with an all-reduce. The start is added last, by the rank that has
// the row, because no rank has all of it. So bits do not depend on which rank has which row.
func (c *Carry) reduceScatter(y, start, scratch npu.Buffer, started bool, bounds []int, width int,
	product func(lo, hi int, add bool)) {
	rank, t := c.group.Rank(), bounds[len(bounds)-1]
	product(0, t, false)
	host := c.host(scratch)
	c.download(host, scratch)
	if c.err == nil {
		c.err = c.group.AllReduceOrdered(c.ctx, host)
	}
	c.upload(scratch, host)
	part := scratch.Slice(bounds[rank]*width, bounds[rank+1]*width)
	if part.IsNil() {
		return
	}
	if started {
		c.dev.Add(part, start)
	}
	c.dev.Copy(y, part)
}

// send sends x without waiting for the receiver.
func (c *Carry) send(to int, x npu.Buffer) {
	host := x.Float32s()
	if host == nil {
		host = make([]float32, x.Len())
	}
	c.post(to, x, host)
}

// receive receives x.
func (c *Carry) receive(from int, x npu.Buffer) {
	host := x.Float32s()
	if host == nil {
		host = make([]float32, x.Len())
	}
	c.recv(from, host)
	c.upload(x, host)
}

// Max replaces x by its maximum over the ranks.
func (c *Carry) Max(x npu.Buffer) {
	host := c.host(x)
	c.download(host, x)
	if c.err == nil {
		c.err = c.group.AllReduceMax(c.ctx, host)
	}
	c.upload(x, host)
}

// Along runs compute on one rank after the other. Each rank gets the values of x that the rank
// before it left, and in the end all have those of the last one.
func (c *Carry) Along(x npu.Buffer, compute func()) {
	rank, last := c.group.Rank(), c.group.Size()-1
	host := c.host(x)
	if rank > 0 {
		c.recv(rank-1, host)
		c.upload(x, host)
	}
	compute()
	if rank < last {
		c.post(rank+1, x, host)
		c.sent()
	} else {
		c.download(host, x)
	}
	if c.err == nil {
		c.err = parallel.Broadcast(c.ctx, c.group, last, host)
	}
	if rank < last {
		c.upload(x, host)
	}
}

// Gather gives all ranks all ranges of x, which follow each other and have counts[i] values. This
// rank has computed its own.
func (c *Carry) Gather(x npu.Buffer, counts []int) {
	host := c.host(x)
	c.download(host, x)
	if c.err == nil {
		c.err = parallel.AllGather(c.ctx, c.group, host, counts)
	}
	c.upload(x, host)
}

// host returns memory of the host for the values of x: x's own if the host can address it.
func (c *Carry) host(x npu.Buffer) []float32 {
	if x.Space() == npu.Host {
		return x.Float32s()
	}
	if len(c.staging) < x.Len() {
		c.staging = make([]float32, x.Len())
	}
	return c.staging[:x.Len()]
}

// download waits for the device and copies x to host, unless they share memory.
func (c *Carry) download(host []float32, x npu.Buffer) {
	if c.err != nil {
		return
	}
	if x.Space() != npu.Host {
		c.dev.Download(host, x)
	}
	c.err = c.dev.Sync()
}

// upload copies host to x, unless they share memory.
func (c *Carry) upload(x npu.Buffer, host []float32) {
	if x.Space() != npu.Host && c.err == nil {
		c.dev.Upload(x, host)
	}
}

// post sends x by way of host, without waiting for the receiver.
func (c *Carry) post(to int, x npu.Buffer, host []float32) {
	c.download(host, x)
	if c.err == nil {
		c.posts = append(c.posts, parallel.Post(c.ctx, c.group, to, host))
	}
}

// sent waits until the oldest message of post has left.
func (c *Carry) sent() {
	if len(c.posts) == 0 {
		return
	}
	err := c.posts[0].Wait()
	c.posts = c.posts[1:]
	if c.err == nil {
		c.err = err
	}
}

func (c *Carry) recv(from int, host []float32) {
	if c.err == nil {
		if err := parallel.Recv(c.ctx, c.group, from, host); err != nil {
			c.err = fmt.Errorf("tensor rank %d: %w", c.group.Rank(), err)
		}
	}
}

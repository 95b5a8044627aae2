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
	"slices"

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

	ctx     context.Context     //nolint:containedctx // the run's context, because kernels take none
	err     error               // first failure
	staging []float32           // host copy of a buffer whose memory the host cannot address
	posts   []*parallel.Pending // sends in flight, oldest first; all have left when a method returns
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

// minChunk is the minimum number of rows that a rank hands on at a time, because kernels are slow
// on few rows.
const minChunk = 24

// Chunk returns the number of rows, of t in total, that a rank hands on at a time: about four
// chunks for each rank.
func Chunk(t, ranks int) int { return max(minChunk, (t+4*ranks-1)/(4*ranks)) }

// Rows computes y [t, width] = start + Σ products over the ranks, and gives y to all of them.
// start is [t, width] or none. product computes this rank's product for rows [lo, hi) of y,
// from 0 or, with add, from the values in y.
//
// Chunks of rows pass from rank 0 to the last rank; each rank continues their sums. The last rank
// sends the finished chunks to rank 0, from where they pass along the ranks once more.
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
	for lo := 0; lo < t && c.err == nil && rank < last; lo += chunk { // the finished sums arrive
		hi := min(t, lo+chunk)
		values := host[lo*width : hi*width]
		c.awaitPost() // values may still be on their way to the next rank
		c.recv((rank+last)%(last+1), values)
		if rank < last-1 {
			c.posts = append(c.posts, parallel.Post(c.ctx, c.group, rank+1, values))
		}
		c.upload(y.Slice(lo*width, hi*width), values)
	}
	for len(c.posts) > 0 {
		c.awaitPost()
	}
}

// begin sets part, the values of the sum from value first on, to what this rank's product
// continues: the sum of the previous ranks or, on rank 0, start.
func (c *Carry) begin(part, start npu.Buffer, first int, host []float32) {
	rank := c.group.Rank()
	end := first + part.Len()
	if rank > 0 {
		c.recv(rank-1, host[first:end])
		c.upload(part, host[first:end])
		return
	}
	if start.IsNil() {
		return
	}
	if from := start.Slice(first, end); from.Addr() != part.Addr() {
		c.dev.Copy(part, from)
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

// Scatter is Rows with divided rows: rank i has rows bounds[i] to bounds[i+1] of start and gets
// these rows of the sum in y. started is false if no rank has a start. product computes rows
// [lo, hi) in scratch [t, width].
//
// A rank first sends its rows of start to rank 0. Chunks of rows then pass from rank 0 to the last
// rank, which sends each finished chunk to the rank that owns it.
func (c *Carry) Scatter(y, start, scratch npu.Buffer, started bool, bounds []int, width int,
	product func(lo, hi int, add bool)) {
	rank, last := c.group.Rank(), c.group.Size()-1
	own, t := bounds[rank], bounds[last+1]
	if c.Reduce {
		c.reduceScatter(y, start, scratch, started, bounds, width, product)
		return
	}
	host, chunks := c.host(scratch), chunksOf(bounds, Chunk(t, last+1))
	// ownRows returns a chunk that this rank owns in b, which has only this rank's rows.
	ownRows := func(b npu.Buffer, k chunk) npu.Buffer { return b.Slice((k.lo-own)*width, (k.hi-own)*width) }
	values := func(k chunk) []float32 { return host[k.lo*width : k.hi*width] }
	if rank > 0 && started { // rank 0 begins the sums
		for _, k := range chunks {
			if k.owner == rank {
				c.send(0, ownRows(start, k))
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
			c.dev.Copy(part, ownRows(start, k))
		}
		if c.err != nil {
			break
		}
		product(k.lo, k.hi, rank > 0 || started)
		switch {
		case rank < last:
			c.post(rank+1, part, values(k))
		case k.owner == last:
			c.dev.Copy(ownRows(y, k), part)
		default:
			c.post(k.owner, part, values(k))
		}
	}
	for len(c.posts) > 0 {
		c.awaitPost()
	}
	if rank < last {
		for _, k := range chunks {
			if k.owner == rank {
				c.receive(last, ownRows(y, k))
			}
		}
	}
}

// chunk is a range [lo, hi) of the rows of rank owner.
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

// reduceScatter computes what Scatter does with an all-reduce. Each rank adds its rows of start
// last, because no rank has all of start. So bits do not depend on which rank has which row.
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

// send sends x without waiting for the receiver, with host memory of its own if it needs any.
func (c *Carry) send(to int, x npu.Buffer) {
	host := x.Float32s()
	if host == nil {
		host = make([]float32, x.Len())
	}
	c.post(to, x, host)
}

// receive receives x, with host memory of its own if it needs any.
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

// Sum replaces x, integers of 64 bits, by their sum over the ranks.
func (c *Carry) Sum(x npu.Buffer) {
	if c.err != nil {
		return
	}
	values, write := npu.ReadInt64s(c.dev, x)
	if c.err = c.dev.Sync(); c.err == nil {
		c.err = c.group.AllReduceSum(c.ctx, values)
	}
	if c.err == nil {
		write()
	}
}

// Along runs compute on one rank after the other. Each rank gets the values of x that the previous
// rank left. In the end all ranks have those of the last one.
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
		c.awaitPost() // the broadcast overwrites host
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

// Gather gives all ranks all ranges of x. The range of rank i has counts[i] values and follows those
// of lower ranks. Each rank has computed its own range. counts of BFloat16 values are even.
func (c *Carry) Gather(x npu.Buffer, counts []int) {
	if x.DType() == npu.BFloat16 { // messages are words of float32, whose bits stay as they are
		x = x.As(npu.Float32)
		counts = slices.Clone(counts)
		for i := range counts {
			if counts[i]%2 != 0 {
				panic(fmt.Sprintf("carry: %d values of bfloat16, expected an even number", counts[i]))
			}
			counts[i] /= 2
		}
	}
	host := c.host(x)
	c.download(host, x)
	if c.err == nil {
		c.err = parallel.AllGather(c.ctx, c.group, host, counts)
	}
	c.upload(x, host)
}

// host returns host memory for the values of x: x's own if the host can address it, else staging,
// which is valid until the next call.
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

// awaitPost waits until the oldest message of post has left, if any is in flight.
func (c *Carry) awaitPost() {
	if len(c.posts) == 0 {
		return
	}
	err := c.posts[0].Wait()
	c.posts = c.posts[1:]
	if c.err == nil {
		c.err = err
	}
}

// recv receives values into host.
func (c *Carry) recv(from int, host []float32) {
	if c.err == nil {
		if err := parallel.Recv(c.ctx, c.group, from, host); err != nil {
			c.err = fmt.Errorf("tensor rank %d: %w", c.group.Rank(), err)
		}
	}
}

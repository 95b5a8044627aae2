// Package fake plays PyTorch ranks for tests: it speaks their protocol over TCP and computes
// with easyrl's own kernels on a CPU, so that results repeat. Ranks.Fault makes them fail at
// chosen messages.
package fake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/wire"
)

// Fault is a way to fail.
type Fault int

// Ways to fail.
const (
	None  Fault = iota
	Die         // close the connection
	Hang        // send nothing more
	Stall       // send beats, but no answers
	Lie         // answer something else
	Fail        // report an error
)

// Moment is when a rank is about to handle a message.
type Moment struct {
	Start int // of the ranks, from 1
	Rank  int
	Kind  string // of the message
	ID    int64  // of the micro-batch; 0 if the message has none
}

// Ranks are the ranks of a session. Fields are set before Run.
type Ranks struct {
	Dial  func(ctx context.Context) (net.Conn, error)
	Token string
	World int
	// Format of the sums of gradients; the zero value is that of up to 1,000 responses of 1,000
	// tokens.
	Format npu.FixedPoint
	Memory func(start int) int             // max. rows of all micro-batches that a rank holds; nil or 0 for no limit
	Ready  func(rank int, m *wire.Ready)   // changes a rank's Ready before it is sent; may be nil
	Mode   string                          // mode of ranks if the session asks for "auto"; empty means wire.Free
	Fault  func(at Moment) Fault           // nil for no faults; ranks call it concurrently
	Lie    func(wire.Message) wire.Message // returns the answer for the fault Lie; nil changes IDs

	mu  sync.Mutex
	log [][]string // by rank: kinds of the micro-batches' messages since the last start; guarded by mu
}

// Run starts the ranks, again each time that all of them have ended, until ctx ends or a
// session has ended them.
func (f *Ranks) Run(ctx context.Context) {
	if f.Format.Scale == 0 {
		f.Format = optim.FixedPoint(1e6, 1000)
	}
	for start := 1; ctx.Err() == nil; start++ {
		var running conc.WaitGroup
		group := newGroup()
		ended := make([]bool, f.World)
		f.mu.Lock()
		f.log = make([][]string, f.World)
		f.mu.Unlock()
		dialing, stop := context.WithCancel(ctx)
		for i := range f.World {
			running.Go(func() {
				if conn := f.dial(dialing); conn != nil {
					defer stop() // a rank that has not connected starts again with this one
					ended[i] = f.run(ctx, conn, start, i, group)
				}
			})
		}
		running.Wait()
		stop()
		if ended[0] {
			return
		}
	}
}

// Received returns the kinds of the micro-batches' messages that each rank received since the
// last start, in order.
func (f *Ranks) Received() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log
}

// dial connects to the session, as soon as it listens. It returns nil if ctx ends before.
func (f *Ranks) dial(ctx context.Context) net.Conn {
	for ctx.Err() == nil {
		if conn, err := f.Dial(ctx); err == nil {
			return conn
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// run is a rank from its hello to its end. It reports whether the session ended it in order.
func (f *Ranks) run(ctx context.Context, conn net.Conn, start, number int, g *group) (ended bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	r := &rank{ranks: f, start: start, number: number, group: g, conn: conn, frames: make(chan wire.Frame, 1000),
		cancel: cancel}
	var running conc.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { r.read(ctx) })
	running.Go(func() { r.beat(ctx) })
	err := r.work(ctx)
	r.close()
	if errors.Is(err, errEnd) {
		return true
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errDied) {
		failed := wire.Failed{Error: err.Error()}
		if full := new(fullError); errors.As(err, full) {
			failed.OutOfMemory = full.held
		}
		_ = r.send(failed, wire.Body{})
	}
	return false
}

var (
	errEnd  = errors.New("the session ended")
	errDied = errors.New("died")
)

// fullError reports that a rank holds more rows than its memory allows.
type fullError struct {
	rows    int     // rows of the micro-batches that it holds
	maxRows int     // rows that it has memory for
	held    []int64 // IDs of the micro-batches that it holds
}

func (e fullError) Error() string {
	return fmt.Sprintf("out of memory: %d rows, and there is room for %d", e.rows, e.maxRows)
}

// read queues frames until the connection ends, which ends the rank.
func (r *rank) read(ctx context.Context) {
	defer r.cancel()
	in := bufio.NewReader(r.conn)
	for {
		frame, err := wire.Read(in, wire.AtMost(wire.MaxArrays))
		if err != nil {
			return
		}
		if frame.Kind == (wire.Beat{}).Kind() {
			continue
		}
		select {
		case r.frames <- frame:
		case <-ctx.Done():
			return
		}
	}
}

func (r *rank) beat(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !r.quiet.Load() {
				_ = r.send(wire.Beat{}, wire.Body{}) // reading shows that the connection has ended
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *rank) send(m wire.Message, body wire.Body) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	return wire.Send(r.conn, m, body)
}

// next waits for the next message and applies the fault of its moment. It returns the fault Lie to its
// caller, and an error for all faults that end the rank.
func (r *rank) next(ctx context.Context) (wire.Frame, Fault, error) {
	var f wire.Frame
	select {
	case f = <-r.frames:
	case <-ctx.Done():
		return f, None, errDied
	}
	at := Moment{Start: r.start, Rank: r.number, Kind: f.Kind}
	var forward wire.Forward
	var backward wire.Backward
	if f.Decode(&forward) == nil {
		at.ID = forward.ID
	} else if f.Decode(&backward) == nil {
		at.ID = backward.ID
	}
	if at.ID != 0 {
		r.ranks.mu.Lock()
		r.ranks.log[r.number] = append(r.ranks.log[r.number], f.Kind)
		r.ranks.mu.Unlock()
	}
	fault := None
	if r.ranks.Fault != nil {
		fault = r.ranks.Fault(at)
	}
	switch fault {
	case Die:
		_ = r.conn.Close()
		return f, fault, errDied
	case Hang, Stall:
		r.quiet.Store(fault == Hang)
		<-ctx.Done()
		return f, fault, errDied
	case Fail:
		return f, fault, fmt.Errorf("told to fail at %s of rank %d", f.Kind, r.number)
	}
	return f, fault, nil
}

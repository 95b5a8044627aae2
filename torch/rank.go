package torch

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/torch/wire"
)

const (
	beatEvery = time.Second
	maxQueued = 64 // frames that wait to be written to a rank
)

var (
	errClosed = errors.New("closed its connection") // without an error message
	errSilent = errors.New("sent nothing")
	errKilled = errors.New("was killed")
	errFailed = errors.New("failed") // only a target for errors.Is; see failure
)

// died reports whether err is the unexpected end of a rank's process or machine, after which a restart may
// help. An error that a rank reports itself, such as a model that it cannot load, would most likely happen
// again.
func died(err error) bool {
	return errors.Is(err, errClosed) || errors.Is(err, errSilent) || errors.Is(err, errKilled)
}

// rank is a connected rank.
type rank struct {
	arrival
	frames  chan []byte    // encoded frames to write, which no goroutine changes
	stop    chan struct{}  // closed by close
	running conc.WaitGroup // goroutines of start
	limit   atomic.Int64   // max. size of an answer's arrays in bytes

	// Only the session's goroutine uses these.
	ready    wire.Ready
	expected []expectation // in the order of the requests
	since    time.Time     // when the first of expected became the next answer
	row      trace.Track
	traced   time.Time // end of the row's last span
}

// expectation is an answer that a rank still has to send. Answers come in the order of the
// requests.
type expectation struct {
	name   string                    // name of the request in errors
	within time.Duration             // how long the answer may take once it is the next one
	accept func(f *wire.Frame) error // handles the answer; an error is a fault of the rank
}

// failure is the error text that a rank sent before it ended. errors.Is matches it with errFailed.
type failure string

func (f failure) Error() string { return string(f) }

// Is makes a failure match errFailed.
func (f failure) Is(target error) bool { return target == errFailed }

// event is a frame from a rank, or the error that ended its connection.
type event struct {
	rank  *rank
	frame wire.Frame
	err   error
}

func newRank(a arrival, row trace.Track) *rank {
	return &rank{arrival: a, frames: make(chan []byte, maxQueued), stop: make(chan struct{}), row: row}
}

// start starts the goroutines that read and write until close. They call notify after each event. Reading
// fails after the time silence without data. Writing fails if the rank takes a frame for longer than
// writeTime.
func (r *rank) start(events chan<- event, notify func(), silence, writeTime time.Duration) {
	report := func(e event) bool {
		select {
		case events <- e:
			notify()
			return true
		case <-r.stop:
			return false
		}
	}
	r.running.Go(func() {
		err := r.read(report, silence)
		report(event{rank: r, err: err})
	})
	r.running.Go(func() {
		if err := r.write(writeTime); err != nil {
			report(event{rank: r, err: err})
		}
	})
}

// close closes the connection and waits for its goroutines.
func (r *rank) close() {
	close(r.stop)
	_ = r.conn.Close()
	r.running.Wait()
}

// timedReader reads from a rank's connection and fails after the time silence without data.
type timedReader struct {
	*rank
	silence time.Duration
}

func (p timedReader) Read(b []byte) (int, error) {
	if p.r.Buffered() == 0 {
		_ = p.conn.SetReadDeadline(time.Now().Add(p.silence)) // if it fails, so does the read
	}
	return p.r.Read(b)
}

// read reports all frames except beats until the connection ends, and returns the cause. It returns nil
// after close.
func (r *rank) read(report func(e event) bool, silence time.Duration) error {
	for {
		frame, err := wire.Read(timedReader{r, silence}, func() int { return int(r.limit.Load()) })
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%w for %v", errSilent, silence)
		case errors.Is(err, wire.ErrFrame):
			return err
		case err != nil:
			return errClosed
		case frame.Kind == wire.Beat{}.Kind():
			continue
		}
		if !report(event{rank: r, frame: frame}) {
			return nil
		}
	}
}

// write writes queued frames, and a beat every beatEvery, until close or the end of the connection. It returns an
// error if a frame takes longer than writeTime.
func (r *rank) write(writeTime time.Duration) error {
	beat, err := wire.Encode(wire.Beat{}, wire.Body{})
	if err != nil {
		return err
	}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		frame := beat
		select {
		case <-r.stop:
			return nil
		case frame = <-r.frames:
		case <-tick.C:
		}
		_ = r.conn.SetWriteDeadline(time.Now().Add(writeTime)) // if it fails, so does Write
		_, err := r.conn.Write(frame)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("took nothing for %v", writeTime)
		case err != nil:
			return nil // read reports the end, after what the rank sent before it
		}
	}
}

// send queues a message.
func (r *rank) send(m wire.Message, body wire.Body) error {
	frame, err := wire.Encode(m, body)
	if err != nil {
		return err
	}
	return r.queue(frame)
}

// queue sends a frame to the goroutine that writes. It never waits: if maxQueued frames already wait, it
// returns a fault. The caller must not change the frame afterwards.
func (r *rank) queue(frame []byte) error {
	select {
	case r.frames <- frame:
		return nil
	default:
		return r.fault(fmt.Errorf("does not read: %d messages wait", maxQueued))
	}
}

// expect adds an answer that the rank has to send after all others.
func (r *rank) expect(e expectation) {
	if len(r.expected) == 0 {
		r.since = time.Now()
	}
	r.expected = append(r.expected, e)
}

// allow raises the size limit of answers to three arrays of n values: policy, entropy and reference. The
// caller queues the request afterwards, because the goroutine that reads may get the answer at once.
func (r *rank) allow(n int) {
	const arrays = 3
	const valueSize = 4 // bytes
	r.limit.Store(max(r.limit.Load(), int64(arrays*valueSize*n)))
}

// fault returns err as the fault of this rank.
func (r *rank) fault(err error) error { return &session.Fault{Rank: r.name(), Err: err} }

// answer handles a frame, which must be the next expected answer or a failure.
func (r *rank) answer(f *wire.Frame) error {
	if f.Kind == (wire.Failed{}).Kind() {
		var failed wire.Failed
		if err := f.Decode(&failed); err != nil {
			return r.fault(err)
		}
		if len(failed.OutOfMemory) > 0 {
			return r.fault(&session.OutOfMemory{Err: failure(oneLine(failed.Error)), Held: failed.OutOfMemory})
		}
		return r.fault(failure(oneLine(failed.Error)))
	}
	if len(r.expected) == 0 {
		return r.fault(fmt.Errorf("sent %s, expected nothing", wire.Quote(f.Kind)))
	}
	next := r.expected[0]
	r.expected = r.expected[1:]
	r.since = time.Now()
	if err := next.accept(f); err != nil {
		return r.fault(fmt.Errorf("%s: %w", next.name, err))
	}
	return nil
}

// deadline returns when the next answer becomes late, or the zero time if none is expected.
func (r *rank) deadline() time.Time {
	if len(r.expected) == 0 {
		return time.Time{}
	}
	return r.since.Add(r.expected[0].within)
}

// late returns a fault if the next answer is overdue.
func (r *rank) late(now time.Time) error {
	if deadline := r.deadline(); deadline.IsZero() || now.Before(deadline) {
		return nil
	}
	return r.fault(fmt.Errorf("%s: no answer within %v", r.expected[0].name, r.expected[0].within))
}

// trace records a span of work that has just ended. seconds is its duration as the rank reports it; trace
// ignores values that are not plausible. A span begins at the end of the last one at the earliest.
func (r *rank) trace(name string, seconds float64) {
	plausible := seconds >= 0 && seconds < 1e6 // false for NaN; a longer one could overflow a Duration
	if !r.row.Records() || !plausible {
		return
	}
	end := time.Now()
	begin := end.Add(-time.Duration(seconds * float64(time.Second)))
	if begin.Before(r.traced) {
		begin = r.traced
	}
	r.traced = end
	r.row.Add(trace.NoStep, name, begin, end.Sub(begin), trace.Note{})
}

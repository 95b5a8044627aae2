package sharded

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/parallel"
)

// link is one end of the connection between the trainer and a rank. It sends messages of type S and
// receives messages of type R, in order. One goroutine may send while another receives. After send, the
// memory that a message refers to must not be changed.
type link[S, R any] interface {
	send(ctx context.Context, m S) error
	recv(ctx context.Context) (R, error)
}

// pipe is a link within a process. Both ends share the messages' memory.
type pipe[S, R any] struct {
	out    chan<- S
	in     <-chan R
	failed <-chan struct{} // closed when a rank has failed and may no longer receive; nil at a rank's end
}

// depth is the number of commands that a pipe, and a worker's queue of commands, hold. It affects only
// how often the trainer waits.
const depth = 8

// newPipe returns both ends of a pipe. The trainer's sends fail once failed is closed.
func newPipe(failed <-chan struct{}) (trainer pipe[command, answer], rank pipe[answer, command]) {
	commands := make(chan command, depth)
	answers := make(chan answer)
	return pipe[command, answer]{commands, answers, failed}, pipe[answer, command]{answers, commands, nil}
}

func (p pipe[S, R]) send(ctx context.Context, m S) error {
	select {
	case p.out <- m:
		return nil
	case <-p.failed:
		return errors.New("a rank has failed") // the inbox has that rank's own error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p pipe[S, R]) recv(ctx context.Context) (m R, err error) {
	select {
	case m = <-p.in:
		return m, nil
	case <-ctx.Done():
		return m, ctx.Err()
	}
}

// message is what a wire sends.
type message interface {
	command | answer
}

// wire is a link between processes, over a group of all ranks. A message has two parts: its gob encoding
// without Values, and Values. Their lengths go before them: bytes and number of values.
type wire[S, R message] struct {
	group *parallel.Group
	peer  int
}

// maxMessage limits the bytes, and the values, that a peer may make this process allocate for a message.
const maxMessage = 1 << 31

// send fails all ranks if ctx ends within a message (see parallel.Transport).
func (w wire[S, R]) send(ctx context.Context, m S) error {
	field := valuesOf(&m) // m is a copy, so the caller's message keeps its values
	floats := *field
	*field = nil
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(&m); err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	err := parallel.Send(ctx, w.group, w.peer, []int64{int64(text.Len()), int64(len(floats))})
	if err == nil {
		err = parallel.Send(ctx, w.group, w.peer, text.Bytes())
	}
	if err == nil && len(floats) > 0 {
		err = parallel.Send(ctx, w.group, w.peer, floats)
	}
	return err
}

func (w wire[S, R]) recv(ctx context.Context) (m R, err error) {
	var sizes [2]int64
	if err := parallel.Recv(ctx, w.group, w.peer, sizes[:]); err != nil {
		return m, err
	}
	textLen, numFloats := sizes[0], sizes[1]
	if min(textLen, numFloats) < 0 || max(textLen, numFloats) > maxMessage {
		return m, fmt.Errorf("rank %d announced a message of %d bytes and %d values, expected at most %d of each",
			w.peer, textLen, numFloats, maxMessage)
	}
	text := make([]byte, textLen)
	if err := parallel.Recv(ctx, w.group, w.peer, text); err != nil {
		return m, err
	}
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&m); err != nil {
		return m, fmt.Errorf("rank %d sent a message that is not valid: %w", w.peer, err)
	}
	if numFloats > 0 {
		floats := make([]float32, numFloats)
		*valuesOf(&m) = floats
		err = parallel.Recv(ctx, w.group, w.peer, floats)
	}
	return m, err
}

// valuesOf returns the field Values of a command. An answer has none, so the result then is a new slice.
func valuesOf[M message](m *M) *[]float32 {
	if c, ok := any(m).(*command); ok {
		return &c.Values
	}
	return new([]float32)
}

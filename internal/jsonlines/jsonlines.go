// Package jsonlines reads JSON lines from files and pipes.
package jsonlines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/easyrl/easyrl/internal/bytesize"
	"github.com/easyrl/easyrl/internal/filetype"
)

// Line is a line of input, or the error from reading it.
type Line struct {
	Number int // from 1
	Text   []byte
	Err    error
}

// Read returns the non-blank lines of in until ctx ends, without the space around them. A line
// of limit bytes or more is an error. A Line with an error is the last. A goroutine reads in;
// it outlives the iteration while a read blocks, as one of standard input may until the process
// exits.
func Read(ctx context.Context, in io.Reader, limit int) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		lines := make(chan Line)
		go scan(ctx, in, limit, lines)
		for {
			select {
			case l, open := <-lines:
				if !open || ctx.Err() != nil || !yield(l) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// scan sends the lines of in until ctx ends, then closes out.
func scan(ctx context.Context, in io.Reader, limit int, out chan<- Line) {
	defer close(out)
	send := func(l Line) bool {
		select {
		case out <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, limit)
	n := 1
	for ; lines.Scan(); n++ {
		if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 && !send(Line{Number: n, Text: bytes.Clone(text)}) {
			return
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		send(Line{Number: n, Err: fmt.Errorf("line is longer than %s", bytesize.Text(int64(limit)))})
	} else if err != nil {
		send(Line{Number: n, Err: err})
	}
}

// Fault rewords an error of encoding/json about the line for users. expected names what the line
// should hold. If the first line shows that the file is of another kind, the error says so.
func (l *Line) Fault(err error, expected string) error {
	if l.Number == 1 {
		if other := filetype.Explain(l.Text, "JSON lines with "+expected); other != nil {
			return other
		}
	}
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Errorf("%s: found a JSON %s, expected %s", mismatch.Field, mismatch.Value, expected)
	case errors.As(err, &mismatch):
		return fmt.Errorf("found a JSON %s, expected %s", mismatch.Value, expected)
	}
	return fmt.Errorf("not JSON: %w, expected %s", err, expected)
}

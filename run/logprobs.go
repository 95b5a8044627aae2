package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
)

// maxLine is the maximum length of a line of JSON input, in bytes.
const maxLine = 64 << 20

// row is a line of JSON input, or the error from reading it.
type row struct {
	number int
	text   []byte
	err    error
}

// rows sends the non-blank lines of in until ctx ends. Its goroutine may outlive ctx: a
// read of standard input blocks until the process exits.
func rows(ctx context.Context, in io.Reader) <-chan row {
	out := make(chan row)
	go func() {
		defer close(out)
		send := func(r row) bool {
			select {
			case out <- r:
				return true
			case <-ctx.Done():
				return false
			}
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxLine)
		n := 1
		for ; lines.Scan(); n++ {
			if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 && !send(row{number: n, text: bytes.Clone(text)}) {
				return
			}
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			send(row{number: n, err: fmt.Errorf("line is longer than %d bytes", maxLine)})
		} else if err != nil {
			send(row{number: n, err: err})
		}
	}()
	return out
}

// Logprobs reads lines of JSON with token ids from in and writes a line with the
// trainer's log-probabilities of each to out. name is in's name in errors. threads is
// the number of CPU threads, 0 for all. An invalid line is a usage error.
func Logprobs(ctx context.Context, f *folder.Folder, temperature float32, threads int, in io.Reader, name string, out io.Writer) error {
	dev, err := OpenCPU(threads)
	if err != nil {
		return err
	}
	defer dev.Close() //nolint:errcheck // only read from
	w, err := f.Weights(dev)
	if err != nil {
		return err
	}
	tape := model.NewTape(dev, f.Shape)
	defer tape.Close()
	return logprobs(ctx, tape, w, temperature, in, name, out)
}

// logprobs is Logprobs with an open tape and loaded weights.
func logprobs(ctx context.Context, tape *model.Tape, w *model.Weights, temperature float32, in io.Reader, name string, out io.Writer) error {
	answers := json.NewEncoder(out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := rows(ctx, in)
	for {
		var r row
		var open bool
		select {
		case r, open = <-lines:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil || !open {
			return err
		}
		ids, err := r.ids(w.Config)
		if err != nil {
			return usage.Errorf("%s:%d: %w", name, r.number, err)
		}
		var l attention.Layout
		l.Add(-1, ids, true)
		logp := make([]float32, len(l.Targets))
		if err := tape.Forward(w, &l, temperature, false, logp, make([]float32, len(logp))); err != nil {
			return fmt.Errorf("%s:%d: %w", name, r.number, err)
		}
		if at := slices.IndexFunc(logp, func(v float32) bool { return v-v != 0 }); at >= 0 {
			return fmt.Errorf("%s:%d: log-probability of token %d is %v: the weights overflow at this temperature", name, r.number, at+1, logp[at])
		}
		if err := answers.Encode(map[string][]float32{"logprobs": logp}); err != nil {
			return err
		}
	}
}

// ids parses {"ids":[…]} and checks the ids against c's context and vocabulary.
func (r *row) ids(c *model.Config) ([]int32, error) {
	if r.err != nil {
		return nil, r.err
	}
	var line struct {
		IDs []*int32 `json:"ids"`
	}
	const expected = "{\"ids\":[…]} with token ids"
	if err := json.Unmarshal(r.text, &line); err != nil {
		return nil, jsonFault(err, expected)
	}
	if line.IDs == nil {
		return nil, fmt.Errorf("missing \"ids\", expected %s", expected)
	}
	if len(line.IDs) > c.MaxPositions {
		return nil, fmt.Errorf("got %d tokens, expected %d at most, the model's context", len(line.IDs), c.MaxPositions)
	}
	ids := make([]int32, len(line.IDs))
	for i, id := range line.IDs {
		if id == nil {
			return nil, fmt.Errorf("ids[%d] is null, expected 0 to %d", i, c.VocabSize-1)
		}
		ids[i] = *id
	}
	return ids, checkIDs("ids", ids, c.VocabSize)
}

// checkIDs returns an error for the first id outside the vocabulary.
func checkIDs(name string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%s[%d] is %d, expected 0 to %d", name, i, id, vocab-1)
		}
	}
	return nil
}

// jsonFault rewords an error of encoding/json for users.
func jsonFault(err error, expected string) error {
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Errorf("%s: found a JSON %s, expected %s", mismatch.Field, mismatch.Value, expected)
	case errors.As(err, &mismatch):
		return fmt.Errorf("found a JSON %s, expected %s", mismatch.Value, expected)
	}
	return fmt.Errorf("not JSON: %w, expected %s", err, expected)
}

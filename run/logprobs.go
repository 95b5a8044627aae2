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

// maxLine bounds a line of JSON input.
const maxLine = 64 << 20

// row is a line of JSON input, or the failure to read one.
type row struct {
	number int
	text   []byte
	err    error
}

// rows reads in line by line until ctx ends. Its goroutine may then outlive the
// channel's reader, held by a read of standard input that only the process's end
// breaks off.
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
			send(row{number: n, err: fmt.Errorf("the line is longer than %d bytes", maxLine)})
		} else if err != nil {
			send(row{number: n, err: err})
		}
	}()
	return out
}

// Logprobs answers each JSON line of token ids in in, called name, with a line of
// their log-probabilities in out, as the trainer computes them. threads is the
// number of CPU threads, 0 for all. A line that cannot be answered is a usage error.
func Logprobs(ctx context.Context, f *folder.Folder, temperature float32, threads int, in io.Reader, name string, out io.Writer) error {
	dev, err := OpenCPU(threads)
	if err != nil {
		return err
	}
	defer dev.Close() //nolint:errcheck // nothing is left to do with it
	w, err := f.Weights(dev)
	if err != nil {
		return err
	}
	tape := model.NewTape(dev, f.Shape)
	defer tape.Close()
	return logprobs(ctx, tape, w, temperature, in, name, out)
}

// logprobs answers each line of in with one on out. A line that cannot be
// answered is a usage error.
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
			return fmt.Errorf("%s:%d: the log-probability of token %d is %v: the weights are not usable at this temperature", name, r.number, at+1, logp[at])
		}
		if err := answers.Encode(map[string][]float32{"logprobs": logp}); err != nil {
			return err
		}
	}
}

// ids are the tokens of {"ids":[…]}, as a decoder of shape c takes them.
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
		return nil, fmt.Errorf("no \"ids\", expected %s", expected)
	}
	if len(line.IDs) > c.MaxPositions {
		return nil, fmt.Errorf("%d tokens, but the model's context is %d", len(line.IDs), c.MaxPositions)
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

// checkIDs names the first id outside a vocabulary.
func checkIDs(name string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%s[%d] is %d, expected 0 to %d", name, i, id, vocab-1)
		}
	}
	return nil
}

// jsonFault says in a user's words why JSON is not what was expected.
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

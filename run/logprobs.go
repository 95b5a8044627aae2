package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/internal/jsonlines"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
)

// maxIDsLine is the maximum length of a line of JSON input in bytes, 64 MiB: more than any model's context needs.
const maxIDsLine = 64 << 20

// Logprobs reads lines of JSON with token ids from in and writes a line with the
// trainer's log-probabilities of each, computed on dev, to out. name is in's name in errors. An
// invalid line is a usage error.
func Logprobs(
	ctx context.Context, f *folder.Folder, dev npu.Device, temperature float32, in io.Reader, name string,
	out io.Writer,
) error {
	w, err := f.Weights(dev)
	if err != nil {
		return err
	}
	tape := model.NewTape(dev, f.Shape)
	defer tape.Close()
	answers := json.NewEncoder(out)
	for line := range jsonlines.Read(ctx, in, maxIDsLine) {
		ids, err := parseIDs(line, w.Config)
		if err != nil {
			return usage.Errorf("%s:%d: %w", name, line.Number, err)
		}
		var l attention.Layout
		l.Add(-1, ids, true) // a tree of one sequence, whose tokens are all targets
		logp := make([]float32, len(l.Targets))
		err = tape.Forward(w, &l, temperature, false, logp, make([]float32, len(logp)))
		if err == nil {
			err = tape.Wait()
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, line.Number, err)
		}
		notFinite := func(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) }
		if i := slices.IndexFunc(logp, notFinite); i >= 0 {
			return fmt.Errorf("%s:%d: log-probability of token %d is %v: the weights overflow at this temperature",
				name, line.Number, i+1, logp[i]) // token 0 has none
		}
		if err := answers.Encode(map[string][]float32{"logprobs": logp}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// parseIDs reads {"ids":[…]} and checks the ids against c's context and vocabulary.
func parseIDs(line jsonlines.Line, c *model.Config) ([]int32, error) {
	if line.Err != nil {
		return nil, line.Err
	}
	var row struct {
		IDs []*int32 `json:"ids"`
	}
	const expected = "{\"ids\":[…]} with token ids"
	if err := json.Unmarshal(line.Text, &row); err != nil {
		return nil, line.Fault(err, expected)
	}
	if row.IDs == nil {
		return nil, fmt.Errorf("missing \"ids\", expected %s", expected)
	}
	if len(row.IDs) > c.MaxPositions {
		return nil, fmt.Errorf("got %d tokens, expected %d at most, the model's context", len(row.IDs), c.MaxPositions)
	}
	ids := make([]int32, len(row.IDs))
	for i, id := range row.IDs {
		switch {
		case id == nil:
			return nil, fmt.Errorf("ids[%d] is null, expected 0 to %d", i, c.VocabSize-1)
		case *id < 0 || int(*id) >= c.VocabSize:
			return nil, fmt.Errorf("ids[%d] is %d, expected 0 to %d", i, *id, c.VocabSize-1)
		}
		ids[i] = *id
	}
	return ids, nil
}

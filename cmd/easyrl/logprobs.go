package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/model"
)

// maxLine bounds a line of JSON input.
const maxLine = 64 << 20

func logprobsVerb(std streams) verb {
	v := verb{
		name:    "logprobs",
		summary: "Print the log-probability of each token given those before it, as the trainer computes it.",
		example: `echo '{"ids":[1,403,407]}' | easyrl logprobs -model DIR`,
		flags:   newFlags(),
	}
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder")
	data := v.flags.String("data", "", "`FILE` of JSON lines {\"ids\":[…]}; standard input by default")
	temperature := v.flags.Float64("temperature", 1, "`T` that divides the logits")
	threads := v.flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" {
			return usagef("logprobs: expected -model DIR and no other argument (see easyrl logprobs -h)")
		}
		if !(*temperature > 0) {
			return usagef("logprobs: -temperature is %v, expected more than 0", *temperature)
		}
		in := std.in
		name := "standard input"
		if *data != "" {
			file, err := os.Open(*data)
			if err != nil {
				return usageError{err}
			}
			defer file.Close() //nolint:errcheck // only read
			in, name = file, *data
		}
		f, err := openFolder(*dir)
		if err != nil {
			return err
		}
		dev, err := openDevice(configs.CPU, *threads)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // nothing is left to do with it
		w, err := f.weights(dev)
		if err != nil {
			return err
		}
		tape := model.NewTape(dev, f.shape)
		defer tape.Close()
		return logprobs(ctx, tape, w, float32(*temperature), in, name, std.out)
	}
	return v
}

// logprobs answers each line of in with one on out.
func logprobs(ctx context.Context, tape *model.Tape, w *model.Weights, temperature float32, in io.Reader, name string, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	answers := json.NewEncoder(out)
	for n := 1; lines.Scan(); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var row struct {
			IDs []int32 `json:"ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("%s:%d: %w, expected {\"ids\":[…]}", name, n, err)
		}
		if limit := w.Config.MaxPositions; len(row.IDs) > limit {
			return fmt.Errorf("%s:%d: %d tokens, but the model's context is %d", name, n, len(row.IDs), limit)
		}
		var l attention.Layout
		l.Add(-1, row.IDs, true)
		logp := make([]float32, len(l.Targets))
		if err := tape.Forward(w, &l, temperature, false, logp, make([]float32, len(logp))); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if err := answers.Encode(map[string][]float32{"logprobs": logp}); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Package score scores existing responses, so that a reward can be tried out and a run
// regraded without sampling.
package score

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/sourcegraph/conc/stream"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/jsonlines"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout/sample"
)

// Stdin is the name of standard input among files.
const Stdin = "-"

// Options says what to read and where to write.
type Options struct {
	// Files hold JSON lines: {"prompt":…,"answer":…,"response":…}, or prompts with several
	// responses as in a run's rollouts/ and heldout/ and in the record of an evaluation.
	// Stdin is In. Without files, only In is read.
	Files []string
	In    io.Reader
	// Warn reports a file whose last line is cut off and was skipped.
	Warn func(format string, args ...any)
	// Path is a file to write instead of Out; may be empty.
	Path string
	Out  io.Writer
}

// Counts summarizes the responses that were scored.
type Counts struct {
	Scored, Right, Failed int
	Total                 float64 // sum of the scores
	First                 error   // error of the first failure, with its file and line
}

// String returns the counts as part of a line.
func (c *Counts) String() string {
	mean := ""
	if c.Scored > 0 {
		mean = fmt.Sprintf("mean score %.4f, ", c.Total/float64(c.Scored))
	}
	return fmt.Sprintf("scored %d, %sright %d, errors %d", c.Scored, mean, c.Right, c.Failed)
}

// Err returns an error if responses have no score.
func (c *Counts) Err() error {
	if c.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d responses have no score; the first is %w", c.Failed, c.Failed+c.Scored,
		usage.OneLine(c.First))
}

// result is a line of output.
type result struct {
	ID     any                `json:"id"`
	Score  *float64           `json:"score,omitempty"`
	Right  *bool              `json:"right,omitempty"`
	Parts  map[string]float64 `json:"parts,omitempty"`
	Answer string             `json:"answer,omitempty"`
	Reason string             `json:"reason,omitempty"` // why it is not right
	Error  string             `json:"error,omitempty"`  // instead of all but ID
}

// Run scores each response of the files with the reward of a configuration and writes one
// line per response, in order. A response that the reward cannot score is counted and does
// not end it. A malformed line is a usage error that names the file and the line, after the
// results of those before it.
func Run(ctx context.Context, resolved *configs.Resolved, opts Options) (Counts, error) {
	if len(opts.Files) == 0 {
		opts.Files = []string{Stdin}
	}
	if err := opts.check(); err != nil {
		return Counts{}, usage.Wrap(err)
	}
	rewards, err := reward.New(resolved.Reward, resolved.Rollout.MaxTokens)
	if err != nil {
		return Counts{}, usage.Wrap(err)
	}
	defer rewards.Close() //nolint:errcheck // all scores are in
	if opts.Path == "" {
		return scoreAll(ctx, rewards, opts)
	}
	file, err := os.Create(opts.Path)
	if err != nil {
		return Counts{}, usage.Wrap(err)
	}
	opts.Out = file
	counts, err := scoreAll(ctx, rewards, opts)
	return counts, errors.Join(err, file.Close())
}

// check returns an error if a file cannot be read or is the output.
func (o *Options) check() error {
	out, _ := os.Stat(o.Path) // nil if it does not exist
	for _, path := range o.Files {
		if path == Stdin {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return fmt.Errorf("%s is a folder, expected a file of JSON lines", path)
		case out != nil && os.SameFile(info, out):
			return fmt.Errorf("-out %s is also read, expected another file", o.Path)
		}
	}
	return nil
}

// scorer is implemented by *reward.Scorer, and by a fake in tests.
type scorer interface {
	reward.Func
	Capacity() int
}

// maxAtOnce is the maximum number of responses in flight. It bounds the memory for them.
const maxAtOnce = 4096

// scoreAll is Run with an open reward and output. Responses are scored concurrently: one a
// core, or as many as the reward's programs and services take.
func scoreAll(ctx context.Context, rewards scorer, opts Options) (Counts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var counts Counts
	out := json.NewEncoder(plain.JSONWriter{W: opts.Out})
	out.SetEscapeHTML(false)
	atOnce := max(runtime.GOMAXPROCS(0), min(rewards.Capacity(), maxAtOnce))
	results := stream.New().WithMaxGoroutines(atOnce)
	err := opts.each(ctx, func(r response) {
		results.Go(func() stream.Callback {
			score, err := sample.Score(ctx, rewards, r.input)
			return func() { // stream runs these in the order of the responses, one at a time
				if ctx.Err() != nil {
					return
				}
				if err := out.Encode(counts.add(r, &score, err)); err != nil {
					cancel(fmt.Errorf("write scores: %w", err))
				}
			}
		})
	})
	results.Wait()
	if ctx.Err() != nil {
		return counts, context.Cause(ctx)
	}
	return counts, err
}

// add counts a response and returns its line.
func (c *Counts) add(r response, score *reward.Score, err error) result {
	if err != nil {
		c.Failed++
		if c.First == nil {
			c.First = fmt.Errorf("%s: %w", r.place, err)
		}
		return result{ID: r.id, Error: err.Error()}
	}
	c.Scored++
	c.Total += score.Value
	right := score.Right()
	if right {
		c.Right++
	}
	return result{ID: r.id, Score: &score.Value, Right: &right, Parts: score.Parts, Answer: score.Answer,
		Reason: score.Reason}
}

// maxLine is the maximum length of a line in bytes, 1 GiB. A line may hold many long responses with their tokens.
const maxLine = 1 << 30

// each calls yield for each response of the files until ctx ends.
func (o *Options) each(ctx context.Context, yield func(response)) error {
	for _, path := range o.Files {
		if err := o.file(ctx, path, yield); err != nil {
			return err
		}
	}
	return nil
}

// file calls yield for each response of a file. A malformed last line that is cut off only causes a warning, if
// another line of the file is good.
func (o *Options) file(ctx context.Context, path string, yield func(response)) error {
	in, name := o.In, "stdin"
	if path != Stdin {
		file, err := filetype.OpenInput(path)
		if err != nil {
			return usage.Wrap(err)
		}
		defer file.Close() //nolint:errcheck // read only
		in, name = file, path
	}
	var fault error // error of the previous line; it may be the last one, so it is not returned at once
	good := 0       // number of valid lines
	for line := range jsonlines.Read(ctx, in, maxLine) {
		if fault != nil {
			return fault
		}
		place := fmt.Sprintf("%s:%d", name, line.Number)
		all, err := parse(line, place)
		if err != nil {
			if fault = usage.Errorf("%s: %w", place, err); path == Stdin {
				return fault
			}
			continue
		}
		good++
		for _, r := range all {
			yield(r)
		}
	}
	if fault != nil && good > 0 {
		if cut := report.CutOff(path); cut != "" {
			o.Warn("%s", cut)
			return nil
		}
	}
	return fault
}

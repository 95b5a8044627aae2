// Package reward scores responses.
//
// A score that cannot be had is an error and never a number: neither a fault nor
// a deadline may look like a bad answer.
package reward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/rollout"
)

// The kinds of reward.
const (
	// Exact compares the whole response with the answer.
	Exact = "exact"
	// Prefix gives credit for each leading character that is right.
	Prefix = "prefix"
	// Command asks a program, over JSON lines.
	Command = "command"
)

// ErrNoAnswer is wrapped where a kind that compares with an answer finds none.
var ErrNoAnswer = errors.New("the prompt has no answer, expected one to compare with")

// Input is one response to score.
type Input struct {
	Prompt *rollout.Prompt
	Text   string         // of the response
	Finish rollout.Finish // why it ended
	Length int            // in tokens
}

// Score is a reward and, where it has components, their values by name.
type Score struct {
	Value float64
	Parts map[string]float64
	// Answer is what the response was taken to answer, in one form for all
	// that mean the same, so that responses can be counted by it; empty where
	// there is none or the kind looks for none.
	Answer string
}

// Func scores responses. Calls may be concurrent, and as many as a period has
// responses. An error means that there is no score. A Func that may hang keeps a
// clock of its own, which starts when scoring does: a wait for its turn does not
// count.
type Func interface {
	Score(ctx context.Context, in Input) (Score, error)
}

// Config is the [reward] section of a run.
type Config struct {
	// Kind of reward: "exact", "prefix" or "command".
	Kind string `toml:"kind"`
	// Think lets kind "exact" skip one leading <think>…</think>.
	Think bool `toml:"think"`
	// Trim makes kind "exact" ignore white space around response and answer.
	Trim bool `toml:"trim"`
	// Command is the program of kind "command" and its arguments.
	Command []string `toml:"command"`
	// Processes of Command at most; each scores one response at a time.
	Processes int `toml:"processes"`
	// Timeout in seconds for one answer of Command, counted from when the
	// response is handed to it; the first one includes the program's start.
	Timeout float64 `toml:"timeout"`
}

// Default is the exact comparison.
func Default() Config { return Config{Kind: Exact, Processes: 4, Timeout: 30} }

// Validate reports all faults of c together, each beginning with its key.
func (c *Config) Validate() error {
	var faults []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	expect(slices.Contains([]string{Exact, Prefix, Command}, c.Kind),
		`kind is %q, expected "exact", "prefix" or "command"`, c.Kind)
	expect(!c.Think || c.Kind == Exact, `think is true, expected false with kind %q`, c.Kind)
	expect(!c.Trim || c.Kind == Exact, `trim is true, expected false with kind %q`, c.Kind)
	if c.Kind == Command {
		expect(len(c.Command) > 0 && c.Command[0] != "", `command is empty, expected a program and its arguments with kind "command"`)
	} else {
		expect(len(c.Command) == 0, `command is %q, expected none with kind %q`, strings.Join(c.Command, " "), c.Kind)
	}
	expect(c.Processes >= 1, "processes is %d, expected 1 or more", c.Processes)
	expect(c.Timeout > 0 && c.Timeout <= maxTimeout, "timeout is %v, expected more than 0 and at most %v seconds", c.Timeout, maxTimeout)
	return errors.Join(faults...)
}

// maxTimeout is a day, in seconds.
const maxTimeout = 86400

// New makes the reward that cfg describes. Where the result is an io.Closer the
// caller closes it, when no Score is wanted any more.
func New(cfg Config) (Func, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new reward: %w", err)
	}
	switch cfg.Kind {
	case Prefix:
		return prefix{}, nil
	case Command:
		return newCommand(cfg.Command, cfg.Processes, time.Duration(cfg.Timeout*float64(time.Second)))
	default:
		return exact{think: cfg.Think, trim: cfg.Trim}, nil
	}
}

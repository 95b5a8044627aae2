package reward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/reward/queue"
	"github.com/easyrl/easyrl/reward/wire"
)

// Command is the name of commandKind.
const Command = "command"

// CommandConfig holds the keys that only kind "command" has.
type CommandConfig struct {
	// Program that "command" runs, with its arguments.
	Command []string `toml:"command"`
	// Names of environment variables that "command" gets from easyrl, besides PATH, HOME, LANG and
	// TMPDIR. Values are not part of a run file.
	Env []string `toml:"env"`
	// Memory limit of each "command" process with its children. A process that exceeds it is
	// killed. 0 sets no limit. Linux only.
	MemoryGiB float64 `toml:"memory_gib" unit:"GiB"`
}

func commandKind() Kind {
	return Kind{
		Name:     Command,
		About:    "calls a program over JSON lines.",
		keys:     append([]string{"command", "env", "memory_gib"}, callKeys()...),
		defaults: func(t *Term) { t.MemoryGiB, t.CallConfig = 8, defaultCalls() },
		example:  func(r *Rule) { r.Command = []string{"python3", "reward.py"} },
		check:    checkCommand,
		build:    func(r *Rule, _ int) (Func, error) { return newCommand(&r.Term) },
	}
}

// isName reports whether text is the name of an environment variable. Lower-case letters count,
// as in http_proxy.
func isName(text string) bool {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(text)
}

func checkCommand(v *validation, r *Rule) {
	v.expect(len(r.Command) > 0 && r.Command[0] != "", "command", "is empty, expected a program and its arguments")
	for i, name := range r.Env {
		shown, _, valued := strings.Cut(name, "=")
		if valued {
			shown += "=***" // the rest may be a password
		}
		v.expect(isName(name), "env",
			"has %.60q at position %d, expected the name of an environment variable; easyrl passes its own value on",
			shown, i+1)
	}
	const maxMemory = 1 << 20
	v.expect(r.MemoryGiB >= 0 && r.MemoryGiB <= maxMemory, "memory_gib",
		"is %v, expected 0, which sets no limit, to %d", r.MemoryGiB, maxMemory)
	checkCalls(v, r)
}

// command scores with processes of an external program. A process starts when it is
// first needed. It reads up to batch requests at once, one JSON object per line, and
// answers them in order, one per line. A process that misses a deadline, violates the
// protocol or exceeds the memory limit is killed with its children and replaced.
type command struct {
	queued
	argv    []string
	env     []string                          // environment of the program
	timeout func(batch []Input) time.Duration // deadline for each answer of a batch
	memory  *program.Guard
}

// newCommand returns the reward of a valid term.
func newCommand(t *Term) (*command, error) {
	if _, err := exec.LookPath(t.Command[0]); err != nil {
		return nil, fmt.Errorf("new reward: command: %w", err)
	}
	env, err := program.Environment(t.Env)
	if err != nil {
		return nil, fmt.Errorf("new reward: env: %w", err)
	}
	c := &command{argv: t.Command, env: env, timeout: func([]Input) time.Duration { return seconds(t.Timeout) },
		memory: program.NewGuard(int64(t.MemoryGiB * (1 << 30)))}
	cfg := queue.Config{Workers: cmp.Or(t.Concurrency, 4), Batch: t.Batch, Retries: t.Retries}
	c.queued = queued{"reward command " + t.Command[0],
		queue.New(cfg, func() queue.Worker[Input, Score] { return &processWorker{command: c} })}
	return c, nil
}

// Close ends all processes and rejects waiting requests.
func (c *command) Close() error {
	err := c.queued.Close()
	c.memory.Close()
	return err
}

// processWorker is a worker of the queue with its own process.
type processWorker struct {
	*command
	process *program.Process // nil if none is running
	lastID  int64            // ID of the last request to process
}

// Ask sends the process a batch. If it fails, the requests before the failure have answers. The first
// request without one counts as its cause, and those after it as not asked.
func (s *processWorker) Ask(ctx context.Context, batch []Input) []outcome {
	reused := s.process != nil
	answers, err := s.attempt(ctx, batch)
	if reused && len(answers) == 0 && errors.Is(err, program.ErrEnded) && ctx.Err() == nil {
		answers, err = s.attempt(ctx, batch) // the process ended after its last answer, so use a new one
	}
	outcomes := make([]outcome, len(batch))
	for i := range outcomes {
		switch {
		case i < len(answers):
			outcomes[i] = outcomeOf(&answers[i], "program")
		case i == len(answers):
			outcomes[i] = outcome{Err: err, Transient: true}
		default:
			outcomes[i] = outcome{Err: queue.ErrUnasked}
		}
	}
	return outcomes
}

// attempt sends the process a batch, and starts one if none is running. After an error none is running.
func (s *processWorker) attempt(ctx context.Context, batch []Input) (answers []wire.Answer, err error) {
	if s.process == nil {
		s.lastID = 0
		if s.process, err = program.Start(s.argv, s.env, s.memory); err != nil {
			return nil, err
		}
	}
	var lines []byte
	firstID := s.lastID + 1
	for _, in := range batch {
		s.lastID++
		line, err := wire.Line(newRequest(s.lastID, in))
		if err != nil {
			return nil, err
		}
		lines = append(lines, line...)
	}
	_, err = s.process.Ask(ctx, lines, len(batch), s.timeout(batch), func(i int, line []byte) error {
		a, err := wire.ReadLine(line, firstID+int64(i))
		if err == nil {
			answers = append(answers, a)
		}
		return err
	})
	if err != nil {
		s.process = nil
	}
	return answers, err
}

// Close kills the process.
func (s *processWorker) Close() {
	if s.process != nil {
		s.process.Kill()
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/run"
)

// Exit statuses of the command.
const (
	exitDone    = 0
	exitFailed  = 1 // the command failed
	exitUsage   = 2 // the command line or the configuration is wrong
	exitStopped = 3 // stopped by a signal; the printed command continues
)

// streams are the standard streams of a verb.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// verbs returns all verbs, in the order in which help lists them.
func verbs(std streams) []cli.Verb {
	all := []cli.Verb{
		trainVerb(std),
		sftVerb(std),
		evalVerb(std),
		scoreVerb(std),
		replayVerb(std),
		auditVerb(std),
		logprobsVerb(std),
		compareVerb(std),
		serveVerb(std),
		generateVerb(std),
		initVerb(std),
		checkVerb(std),
		reportVerb(std),
		fleetVerb(std),
		benchVerb(std),
		versionVerb(std),
	}
	return append(all, cli.CompletionVerb(all, std.out))
}

// execute runs the verb that args name and returns the exit status.
func execute(ctx context.Context, std streams, args []string) int {
	err := cli.Execute(ctx, verbs(std), args, std.out, std.err)
	if errors.Is(err, cli.ErrNoVerb) {
		return exitUsage
	}
	return exitStatus(ctx, std.err, err)
}

// addSettings adds the flag -set to fs and returns the list that collects its values.
func addSettings(fs *flag.FlagSet) *cli.List {
	set := &cli.List{Check: func(value string) error {
		if key, _, ok := strings.Cut(value, "="); !ok || strings.TrimSpace(key) == "" {
			return errors.New("expected section.key=value")
		}
		return nil
	}}
	fs.Var(set, "set", "`section.key=value` override a configuration key; the value is TOML, or a bare word if the "+
		"key is a string; may be repeated")
	return set
}

// deviceFlags adds the flags -device and -numerics to fs.
func deviceFlags(fs *flag.FlagSet) (kind, numerics *string) {
	kind = fs.String("device", configs.CPU, "`KIND` cpu or the path of a kernel library")
	numerics = fs.String("numerics", npu.FP32.String(),
		"`NAME` arithmetic of the kernels: float32, or bf16 for bfloat16 weights and activations")
	return kind, numerics
}

// loadRun reads and validates the configuration of a task.
func loadRun(task configs.Task, files []string, set *cli.List) (*configs.Resolved, error) {
	if len(files) == 0 {
		return nil, usage.Errorf("no configuration given, expected RUN.toml")
	}
	return run.Load(task, files, set.Values)
}

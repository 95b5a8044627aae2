package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
	"github.com/easyrl/easyrl/run/compare"
	"github.com/easyrl/easyrl/run/cores"
)

func compareVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name: "compare",
		Synopsis: "RUN.toml [OVERLAY.toml …] [-modes sync,periodic-async,colocated] [-set section.key=value …] " +
			"[-resume]",
		Summary: "Time a configuration in several modes on the same cores and recommend how to split them.",
		Example: `easyrl compare configs/quickstart.toml -set run.steps=12
			easyrl compare run.toml -modes periodic-async -sweep inference.instances=1,2,4
			easyrl compare run.toml -sweep parallel.dp=1,2,4
			easyrl compare run.toml -repeats 3 -resume`,
		Flags: cli.NewFlags(),
	}
	o := compare.Options{Threads: cores.ShareOf, Cores: runtime.GOMAXPROCS(0)}
	set := addSettings(v.Flags)
	modes := v.Flags.String("modes", "", "`LIST` modes to compare; the first is the baseline (default "+
		"sync,periodic-async,colocated; with -sweep, the run's own mode)")
	v.Flags.StringVar(&o.Sweep, "sweep", "", "`section.key=value,value,…` run each mode with each of these values")
	v.Flags.IntVar(&o.Warmup, "warmup", 1, "`N` untimed steps at the start of each process")
	v.Flags.IntVar(&o.Repeats, "repeats", 1,
		"`N` run each variant N times and use each step's fastest time; reduces noise on a busy machine")
	v.Flags.BoolVar(&o.Resume, "resume", false, "keep finished runs and continue the others")
	v.Flags.StringVar(&o.Dir, "out", "",
		"`DIR` output folder for the runs, compare.json and compare.html (default runs/<name>-compare)")
	v.Run = func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usage.Errorf("no configuration given, expected RUN.toml")
		}
		o.Files, o.Settings = args, set.Values
		if *modes != "" {
			for mode := range strings.SplitSeq(*modes, ",") {
				o.Modes = append(o.Modes, strings.TrimSpace(mode))
			}
		}
		o.Say = func(format string, args ...any) { notice.Print(std.err, notice.Progress, format, args...) }
		o.Train = inSubprocess(std)
		result, err := compare.Run(ctx, o)
		switch {
		case errors.Is(err, compare.ErrUsage), errors.Is(err, compare.ErrRefused):
			return usage.Wrap(err)
		case err != nil && ctx.Err() != nil:
			return run.StoppedError{Message: "stopped; finished runs are kept",
				Continue: run.Command(append(v.Words(args, "resume"), "-resume")...)}
		case result == nil:
			return err
		}
		// If only some runs failed, print the others and return the error.
		if err := result.Print(std.out); err != nil {
			return err
		}
		cli.Printer{W: std.out}.Line("%s", filepath.Join(result.Dir(), compare.PageFile))
		return err
	}
	return v
}

// inSubprocess returns a function that runs easyrl train in a separate process, so that
// runs share neither threads nor memory nor caches. When the context ends, the function
// interrupts the process and waits for it. The process writes to our standard error. If
// the first process rejects its configuration, the error is compare.ErrRefused.
func inSubprocess(std streams) func(ctx context.Context, cores int, args []string) error {
	accepted := false // whether a process has accepted its configuration
	return func(ctx context.Context, cores int, args []string) error {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the easyrl executable: %w", err)
		}
		cmd := exec.CommandContext(ctx, self, append([]string{"train"}, args...)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", cores))
		cmd.Stderr = std.err
		err = cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitUsage && !accepted {
			return compare.ErrRefused
		}
		accepted = true
		if errors.As(err, &exit) {
			return fmt.Errorf("easyrl train exited with status %d, see its error above", exit.ExitCode())
		}
		return err
	}
}

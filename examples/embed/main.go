// Command embed trains a model from a Go program: it loads a configuration,
// changes it and runs it, using only easyrl's packages.
//
//	make quickstart
//	go run ./examples/embed configs/quickstart.toml
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := train(ctx, os.Args[1:], "runs/embed", os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// train runs the configuration in files for three steps, with the run folder dir,
// and prints each step's mean reward to out. The run logs to log.
func train(ctx context.Context, files []string, dir string, out, log io.Writer) error {
	if len(files) == 0 {
		return errors.New("no configuration given, expected RUN.toml")
	}
	resolved, err := run.Load(configs.TrainTask, files, []string{"run.steps=3", fmt.Sprintf("run.dir=%q", dir)})
	if err != nil {
		return err
	}
	if err := run.Train(ctx, resolved, run.Options{Files: files, Out: io.Discard, Log: log}); err != nil {
		return err
	}
	return report.EachStep(filepath.Join(dir, report.MetricsFile), func(values report.Values) error {
		_, err := fmt.Fprintf(out, "step %.0f: mean reward %.3f\n", values["step"], values["reward/mean"])
		return err
	})
}

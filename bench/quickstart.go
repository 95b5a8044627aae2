package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/easyrl/easyrl/report"
)

// quickstart times n steps of the quickstart's GRPO in bin/easyrl, after a first step.
// With one thread, trainer and instance share it.
func quickstart(threads, n int) (outcome, error) {
	mode := "run.mode=periodic-async"
	if threads == 1 {
		mode = "run.mode=colocated"
	}
	lines, usage, err := train(threads, "configs/quickstart.toml", fmt.Sprint("run.steps=", n+1), mode)
	if err != nil {
		return outcome{}, err
	}
	var seconds []float64
	for _, v := range lines[1:] {
		seconds = append(seconds, v["timing_s/step"])
	}
	return outcome{Seconds: map[string][]float64{"": seconds}, PeakBytes: usage.Maxrss * 1024}, nil
}

// start measures the time from the start of easyrl train to the quickstart's first
// finished group, which comes after its first sampled token.
func start(n int) (outcome, error) {
	var seconds []float64
	for range n {
		began := float64(time.Now().UnixNano()) / 1e9
		lines, _, err := train(2, "configs/quickstart.toml", "run.steps=1")
		if err != nil {
			return outcome{}, err
		}
		v := lines[0]
		seconds = append(seconds, v["time"]-v["timing_s/step"]+v["timing_s/publish"]+v["timing_s/first_group"]-began)
	}
	return outcome{Seconds: map[string][]float64{"": seconds}}, nil
}

// train runs bin/easyrl train on the given number of cores and returns its steps'
// metrics.
func train(cores int, config string, settings ...string) ([]report.Values, *syscall.Rusage, error) {
	temporary, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // temporary
	dir := filepath.Join(temporary, "run")
	args := []string{"train", config}
	for _, s := range append([]string{fmt.Sprintf("run.dir=%q", dir), "eval.every=0", "checkpoint.every=0", "log.rollouts=false"}, settings...) {
		args = append(args, "-set", s)
	}
	cmd := exec.Command("bin/easyrl", args...)
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", cores))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %s", cmd, err, lastLine(stderr.Bytes()))
	}
	lines, err := report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("%s: no steps", cmd)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return lines, usage, err
}

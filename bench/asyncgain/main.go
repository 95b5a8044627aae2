// Command asyncgain measures the gain of periodic asynchrony over the synchronous loop.
// It runs the quickstart's GRPO with one thread for the trainer and one for an
// instance, alternating between the two modes, from the same weights and with the same
// seeds.
//
//	make quickstart && go run ./bench/asyncgain
//
// The ceiling is (Ti+Tt)/max(Ti,Tt). Ti is the instance's sampling time per step and Tt
// the trainer's compute time per step, both from the synchronous runs. Settings that
// shift work between the two sides vary Ti:Tt.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

func main() {
	command := flag.String("easyrl", "bin/easyrl", "easyrl binary")
	config := flag.String("config", "configs/quickstart.toml", "run configuration")
	steps := flag.Int("steps", 20, "steps per run")
	skip := flag.Int("skip", 2, "initial steps to ignore")
	rounds := flag.Int("rounds", 3, "runs per mode")
	spread := flag.Bool("spread", false, "measure a spread of Ti:Tt instead of only the given run")
	python := flag.String("python", "", "train on a PyTorch rank that this `PYTHON` starts, instead of our kernels")
	flag.Parse()
	fmt.Println("settings                        round   Ti s   Tt s  Ti:Tt  sync s  async s   gain  ceiling  share")
	for i, settings := range cases() {
		if i > 0 && !*spread {
			break
		}
		if err := measure(*command, *config, *python, *steps, *skip, *rounds, settings); err != nil {
			fmt.Fprintln(os.Stderr, "asyncgain:", err)
			os.Exit(1)
		}
	}
}

// cases returns the unmodified run and settings that give trainer and instance more or
// less work: a third pass and recomputed activations, untrained responses, fewer
// concurrent responses. These use 128 prompts per step. With the run's few prompts,
// sampling the first group and training the last, which cannot overlap with anything,
// take a tenth of a step.
func cases() [][]string {
	spread := func(settings ...string) []string { return append(settings, "rollout.prompts_per_step=128") }
	keep2 := []string{"loss.keep=2"}
	return [][]string{
		{},
		spread("loss.beta=0.01", "train.recompute=true"),
		spread(),
		spread("loss.keep=4"),
		spread(keep2...),
		spread(append(keep2, "inference.max_running=2")...),
		spread(append(keep2, "inference.max_running=1")...),
	}
}

// times holds the mean seconds of a step.
type times struct{ step, sample, train float64 }

func measure(command, config, python string, steps, skip, rounds int, settings []string) error {
	dir, err := os.MkdirTemp("", "asyncgain-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	var gains, ceilings, shares []float64
	name := strings.Join(settings, " ")
	name = strings.NewReplacer("loss.", "", "train.", "", "inference.", "", "filter=best-worst ", "", "rollout.prompts_per_step=", "prompts=").Replace(name)
	if python != "" {
		settings = append(settings, "train.backend=torch", "torch.python="+python)
	}
	for round := range rounds {
		var t [2]times
		for i, mode := range []string{"sync", "periodic-async"} {
			out := filepath.Join(dir, fmt.Sprintf("%s-%d", mode, round))
			if t[i], err = run(command, config, mode, out, steps, skip, settings); err != nil {
				return err
			}
		}
		sync, async := t[0], t[1]
		both, longer := sync.sample+sync.train, max(sync.sample, sync.train)
		gain, ceiling := both/async.step, both/longer // a synchronous step has little else, which is ignored
		fmt.Printf("%-30s  %5d  %5.3f  %5.3f  %5.2f  %6.3f  %7.3f  %5.3f  %7.3f  %4.0f%%\n", name, round+1, sync.sample, sync.train,
			sync.sample/sync.train, sync.step, async.step, gain, ceiling, 100*gain/ceiling)
		gains, ceilings, shares = append(gains, gain), append(ceilings, ceiling), append(shares, gain/ceiling)
	}
	fmt.Printf("%-30s  median                                  %5.3f  %7.3f  %4.0f%%\n", name, median(gains), median(ceilings), 100*median(shares))
	return nil
}

func run(command, config, mode, out string, steps, skip int, settings []string) (times, error) {
	args := []string{"train", config, "-set", fmt.Sprintf("run.dir=%q", out), "-set", "run.mode=" + mode,
		"-set", fmt.Sprint("run.steps=", steps), "-set", "eval.every=0", "-set", "checkpoint.every=0",
		"-set", "log.rollouts=false", "-set", "device.threads=1", "-set", "inference.threads=1", "-set", "inference.instances=1"}
	for _, s := range settings {
		args = append(args, "-set", s)
	}
	cmd := exec.Command(command, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return times{}, fmt.Errorf("%s: %w: %s", mode, err, stderr.String())
	}
	lines, err := report.ReadMetrics(filepath.Join(out, report.MetricsFile))
	if err != nil {
		return times{}, err
	}
	var t times
	counted := 0.0
	for _, v := range lines {
		if v["step"] > float64(skip) {
			counted++
			t.step += v["timing_s/step"]
			t.sample += v["timing_s/sample"]
			t.train += v["timing_s/train"] + v["timing_s/optimizer"]
		}
	}
	return times{t.step / counted, t.sample / counted, t.train / counted}, nil
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

package main

import (
	"fmt"
	"os"
	"strings"
)

// asynchrony is the gain of periodic asynchrony over the synchronous loop in the quickstart's
// GRPO, with one thread for the trainer and one for an instance. Ti is the instance's sampling
// time per step and Tt the trainer's compute time per step, both from synchronous runs.
type asynchrony struct {
	Settings string  `json:"settings"` // changes to the quickstart
	Ratio    float64 `json:"ratio"`    // Ti:Tt
	Gain     float64 `json:"gain"`     // (Ti+Tt) / asynchronous step
	Ceiling  float64 `json:"ceiling"`  // (Ti+Tt) / max(Ti,Tt), the largest possible gain
}

// asyncSettings returns the changes to the quickstart to measure. The first is none. The others vary
// Ti:Tt: a reference pass and recomputed activations make training slower, training on some responses
// only makes it faster, and fewer concurrent responses make sampling slower. They use 128 prompts per
// step. With the quickstart's few prompts, sampling the first group and training the last, which
// overlap with nothing, take a tenth of a step.
func asyncSettings() [][]string {
	return [][]string{
		nil,
		{"rollout.prompts_per_step=128", "loss.beta=0.01", "train.recompute=true"},
		{"rollout.prompts_per_step=128"},
		{"rollout.prompts_per_step=128", "loss.keep=4"},
		{"rollout.prompts_per_step=128", "loss.keep=2"},
		{"rollout.prompts_per_step=128", "loss.keep=2", "inference.max_running=2"},
		{"rollout.prompts_per_step=128", "loss.keep=2", "inference.max_running=1"},
	}
}

// asynchronies measures all settings, alternating between the two modes. Each figure is the median
// over rounds.
func asynchronies(rounds int) ([]asynchrony, error) {
	var all []asynchrony
	for _, settings := range asyncSettings() {
		a := asynchrony{Settings: strings.Join(settings, " ")}
		fmt.Fprintln(os.Stderr, "asynchrony", a.Settings)
		var ratios, gains, ceilings []float64
		for range rounds {
			sync, err := stepTimes("sync", settings)
			if err != nil {
				return nil, err
			}
			async, err := stepTimes("periodic-async", settings)
			if err != nil {
				return nil, err
			}
			both := sync.sample + sync.train // this ignores the other, short parts of a synchronous step
			ratios = append(ratios, sync.sample/sync.train)
			gains = append(gains, both/async.step)
			ceilings = append(ceilings, both/max(sync.sample, sync.train))
		}
		a.Ratio = median(ratios)
		a.Gain = median(gains)
		a.Ceiling = median(ceilings)
		all = append(all, a)
	}
	return all, nil
}

// times holds the mean seconds of a step and of its parts.
type times struct{ step, sample, train float64 }

// stepTimes runs 20 steps of the quickstart in a mode and returns the means over all but the first two.
func stepTimes(mode string, settings []string) (times, error) {
	const steps, skip = 20, 2
	settings = append([]string{"run.mode=" + mode, fmt.Sprint("run.steps=", steps),
		"device.threads=1", "inference.threads=1", "inference.instances=1"}, settings...)
	lines, _, err := train(2, "configs/quickstart.toml", settings...)
	if err != nil {
		return times{}, err
	}
	var t times
	n := float64(len(lines) - skip)
	for _, v := range lines[skip:] {
		t.step += v["timing_s/step"] / n
		t.sample += v["timing_s/sample"] / n
		t.train += (v["timing_s/train"] + v["timing_s/optimizer"]) / n
	}
	return t, nil
}

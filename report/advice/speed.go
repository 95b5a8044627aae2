package advice

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/report"
)

const (
	// window is how many steps in a row a share is judged over: one slow step is
	// no reason.
	window = 5
	// muchIdle is the share of the time above which somebody is mostly waiting, and
	// littleIdle the one below which the other side is the slow one.
	muchIdle, littleIdle = 0.6, 0.2
	// syncIdle is the share above which a trainer that waits for all samples before
	// it begins had better not.
	syncIdle = 0.3
	// leastGain is the gain, as a factor, that is worth a word.
	leastGain = 1.05
)

// pace is what a step's time is made of, in seconds, as means over the window.
type pace struct {
	step, busy, sample float64 // in all; of the trainer at work; of an instance at work
	first              float64 // until there is something to train
	publish            float64
	instances, resting float64 // how many, and the share of the time in which they rest
}

// pace is what the window's steps were made of. Where run.mode is "sync" the first
// group comes with the last; were it not so, it would come with the first of the
// waves in which instances take a step's responses.
func (h *history) pace(run *Run) (p pace, ok bool) {
	var wait float64
	for name, to := range map[string]*float64{stepTime: &p.step, waitTime: &wait, sampleTime: &p.sample, groupTime: &p.first,
		publishTime: &p.publish, fleetSize: &p.instances, idleInstances: &p.resting} {
		if *to, ok = h.lately(name, window); !ok {
			return p, false
		}
	}
	p.busy = p.step - wait
	if run.Mode == "sync" {
		p.first = p.sample / max(run.Waves, 1)
	}
	return p, p.step > 0 && p.busy > 0 && p.sample > 0 && p.instances >= 1
}

// gain is the factor by which a step is shorter with a number of servers that
// sample while the trainer trains: it begins with the first group.
func (p pace) gain(servers float64) float64 {
	return p.step / max(p.first+p.busy, p.publish+p.sample*p.instances/servers)
}

// shared is likewise the factor with a number of threads for instances in the
// trainer's process, and the others for the trainer, which has those of instances
// that rest too where they are lent.
func (p pace) shared(run *Run, threads int) float64 {
	all := float64(run.Training + run.Sampling)
	sampling, training := p.sample*float64(run.Sampling), p.busy*float64(run.Training) // seconds of threads
	took := training / (all - float64(threads))
	if run.Lends {
		training = min(training+p.resting*p.step*float64(run.Sampling), p.busy*all)
		took = (training + sampling) / all
	}
	return p.step / max(p.first+took, p.publish+sampling/float64(threads))
}

// split is the best number of threads for an instance, and the gain that it is.
func (p pace) split(run *Run) (each int, gain float64) {
	instances := int(math.Round(p.instances))
	for n := 1; n*instances < run.Training+run.Sampling; n++ {
		if g := p.shared(run, n*instances); g > gain {
			each, gain = n, g
		}
	}
	return each, gain
}

// setting is how a number of threads for an instance is set.
func (p pace) setting(run *Run, each int) string {
	if run.Lends {
		return fmt.Sprintf("inference.threads = %d", each)
	}
	return fmt.Sprintf("inference.threads = %d and device.threads = %d", each, run.Training+run.Sampling-each*int(math.Round(p.instances)))
}

// trainerIdle: the trainer waits for samples for most of the time. Where sampling
// and training take turns it waits by design.
func trainerIdle(h *history, run *Run) string {
	idle, ok := h.lately(idleTrainer, window)
	p, known := h.pace(run)
	if !ok || !known || idle < syncIdle || run.Mode == "colocated" {
		return ""
	}
	seen := fmt.Sprintf("the trainer waits for samples %.0f%% of the time", idle*100)
	if run.Mode == "sync" {
		gain := p.gain(p.instances)
		if !run.Servers {
			gain = p.shared(run, run.Sampling)
		}
		if gain >= leastGain {
			return fmt.Sprintf("%s, since run.mode is \"sync\": with \"periodic-async\" it trains groups while others are sampled, on the same weights: a step is about %.1f times as fast",
				seen, gain)
		}
	}
	if idle < muchIdle {
		return ""
	}
	if !run.Servers {
		if each, gain := p.split(run); each*int(p.instances) > run.Sampling && gain >= leastGain {
			return fmt.Sprintf("%s: sampling is the slow side; with %s a step is about %.1f times as fast", seen, p.setting(run, each), gain)
		}
		return seen + ": sampling is the slow side, and moving threads to it gains nothing; servers on other machines (inference.endpoints) do"
	}
	enough := math.Ceil(p.instances * p.sample / p.busy)
	if gain := p.gain(enough); enough > p.instances && gain >= leastGain {
		return fmt.Sprintf("%s: sampling is the slow side; with %.0f instances instead of %.0f a step is about %.1f times as fast", seen, enough, p.instances, gain)
	}
	return fmt.Sprintf("%s, and more instances would not help: the first group takes %s s of a step's %s; shorter responses, or more prompts in a step, do",
		seen, report.Number(p.first), report.Number(p.step))
}

// instancesIdle: instances wait for the trainer. Threads that are lent to it
// meanwhile are not idle, and where both take turns they wait by design.
func instancesIdle(h *history, run *Run) string {
	idle, ok := h.lately(idleInstances, window)
	trainer, _ := h.lately(idleTrainer, window)
	p, known := h.pace(run)
	if !ok || !known || idle < muchIdle || trainer > littleIdle || run.Lends || run.Mode == "sync" || run.Mode == "colocated" {
		return ""
	}
	seen := fmt.Sprintf("the instances are idle %.0f%% of the time: training is the slow side", idle*100)
	if run.Servers {
		if enough := math.Ceil(p.instances * p.sample / p.busy); enough < p.instances {
			return fmt.Sprintf("%s; %.0f of the %.0f would keep up with it", seen, enough, p.instances)
		}
		return ""
	}
	if each, gain := p.split(run); each*int(p.instances) < run.Sampling && gain >= leastGain {
		return fmt.Sprintf("%s; with %s a step is about %.1f times as fast", seen, p.setting(run, each), gain)
	}
	return ""
}

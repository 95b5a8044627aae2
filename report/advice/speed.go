package advice

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/steptime"
)

const (
	// window is the number of consecutive steps to average over, so that one slow
	// step does not trigger a warning.
	window = 5
	// muchIdle is the idle share above which a side mostly waits. A side with an idle share below
	// littleIdle is the bottleneck.
	muchIdle, littleIdle = 0.6, 0.2
	// syncIdle is the trainer's idle share above which mode "sync" is worth leaving.
	syncIdle = 0.3
	// minGain is the smallest speed-up factor worth a warning.
	minGain = 1.05
)

// speed holds means over the steps of a window. Servers is the number of instances, embedded ones too.
type speed struct {
	steptime.Measured
	busy  float64 // seconds per step in which the trainer does not wait for groups
	model steptime.Model
}

// speed returns the means over the last window and a model fitted to them.
func (h *history) speed(run *Run) (s speed, ok bool) {
	var wait, publish float64
	for name, to := range map[string]*float64{
		stepTime: &s.Step, waitTime: &wait, sampleTime: &s.Sampling, groupTime: &s.FirstGroup,
		publishTime: &publish, fleetSize: &s.Servers, idleInstances: &s.IdleInstances,
	} {
		if *to, ok = h.lately(name, window); !ok {
			return s, false
		}
	}
	s.busy = s.Step - wait
	s.Overhead, s.Training = publish, s.busy-publish
	s.Split, s.WaitsForBatch = steptime.Split{TrainerThreads: run.Training}, run.Mode != "periodic-async"
	if !run.Servers {
		s.Instances = int(math.Round(s.Servers))
		s.InstanceThreads, s.LendsIdle = run.Sampling/max(s.Instances, 1), run.Lends
	}
	if s.Step <= 0 || s.Training <= 0 || s.Sampling <= 0 || s.Servers < 1 {
		return s, false
	}
	s.model = steptime.Fit([]steptime.Measured{s.Measured}, steptime.Workload{Groups: run.Groups, Waves: run.Waves})
	return s, true
}

// gain returns the predicted speed-up factor of a step if training overlaps with sampling by n servers.
// For instances in the trainer's process, n is the number of threads of each, and the trainer gets the
// other threads.
func (s *speed) gain(n float64) float64 {
	share := s.Split
	if share.Instances > 0 {
		share.InstanceThreads = int(n)
		share.TrainerThreads = s.TrainerThreads + s.SamplingThreads() - share.SamplingThreads()
		n = float64(share.SamplingThreads())
	}
	return s.Step / s.model.Step(share, n)
}

// split returns the best number of threads per instance and its gain.
func (s *speed) split() (each int, gain float64) {
	for n := 1; n*s.Instances < s.TrainerThreads+s.SamplingThreads(); n++ {
		if g := s.gain(float64(n)); g > gain {
			each, gain = n, g
		}
	}
	return each, gain
}

// setting returns the configuration that gives each instance a number of threads.
func (s *speed) setting(each int) string {
	if s.LendsIdle {
		return fmt.Sprintf("inference.threads = %d", each)
	}
	return fmt.Sprintf("inference.threads = %d and device.threads = %d", each,
		s.TrainerThreads+s.SamplingThreads()-each*s.Instances)
}

// trainerIdle warns if the trainer waits for samples most of the time. In mode
// "colocated" it waits by design.
func trainerIdle(h *history, run *Run) string {
	idle, ok := h.lately(idleTrainer, window)
	s, known := h.speed(run)
	if !ok || !known || idle < syncIdle || run.Mode == "colocated" {
		return ""
	}
	seen := fmt.Sprintf("the trainer waits for samples %.0f%% of the time", idle*100)
	if run.Mode == "sync" {
		now := s.Servers
		if !run.Servers {
			now = float64(s.InstanceThreads)
		}
		if gain := s.gain(now); gain >= minGain {
			return fmt.Sprintf("%s. With run.mode = \"periodic-async\" it trains groups while others are sampled, "+
				"on the same weights, and steps are about %.1f times as fast.",
				seen, gain)
		}
	}
	if idle < muchIdle {
		return ""
	}
	if !run.Servers {
		if each, gain := s.split(); each > s.InstanceThreads && gain >= minGain {
			return fmt.Sprintf("sampling is the bottleneck; %s. Set %s for steps about %.1f times as fast.", seen,
				s.setting(each), gain)
		}
		return "sampling is the bottleneck; " + seen +
			". More threads won't help. Add inference servers with inference.endpoints."
	}
	enough := math.Ceil(s.Servers * s.Sampling / s.busy)
	if gain := s.gain(enough); enough > s.Servers && gain >= minGain {
		return fmt.Sprintf(
			"sampling is the bottleneck; %s. Use %.0f instances instead of %.0f for steps about %.1f times as fast.",
			seen, enough, s.Servers, gain)
	}
	return fmt.Sprintf("%s. More instances won't help: the first group takes %s s of a %s s step. Shorten responses "+
		"or use more prompts per step.",
		seen, report.Number(s.FirstGroup), report.Number(s.Step))
}

// instancesIdle warns if the instances wait for the trainer. It does not warn if the instances lend their
// threads, or in modes in which sampling and training alternate, because there instances wait by design.
func instancesIdle(h *history, run *Run) string {
	idle, ok := h.lately(idleInstances, window)
	trainer, _ := h.lately(idleTrainer, window)
	s, known := h.speed(run)
	if !ok || !known || idle < muchIdle || trainer > littleIdle || run.Lends || run.Mode == "sync" ||
		run.Mode == "colocated" {
		return ""
	}
	seen := fmt.Sprintf("training is the bottleneck; the instances are idle %.0f%% of the time", idle*100)
	if run.Servers {
		if enough := math.Ceil(s.Servers * s.Sampling / s.busy); enough < s.Servers {
			return fmt.Sprintf("%s. %.0f of %.0f would keep up.", seen, enough, s.Servers)
		}
		return ""
	}
	if each, gain := s.split(); each < s.InstanceThreads && gain >= minGain {
		return fmt.Sprintf("%s. Set %s for steps about %.1f times as fast.", seen, s.setting(each), gain)
	}
	return ""
}

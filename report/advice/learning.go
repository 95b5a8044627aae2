package advice

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/report"
)

const (
	// maxNoSignal is the share of groups without a signal above which nearly all of a step's sampling is
	// wasted.
	maxNoSignal = 0.9
	// Entropy is averaged over the last entropyWindow steps and compared with the
	// first entropyStart steps. A ratio below entropyLeft is a collapse: learning
	// a task well divides entropy by a small factor, not by ten.
	entropyWindow, entropyStart, entropyLeft = 10, 5, 0.1
	// stillRising is the relative growth of the reward above which entropyCollapse
	// does not warn.
	stillRising = 0.01
	// maxCut is the share of truncated responses above which truncation shapes what the policy learns:
	// with groups of 8, most groups contain a truncated response.
	maxCut = 0.2
	// A gradient norm is a spike if it is at least spike times the median and at least spikeLargest times
	// the largest norm of the spikeWindow steps before. The rule needs more than spikeMinimum steps. In
	// healthy runs norms vary threefold between steps.
	spike, spikeLargest       = 10, 3
	spikeWindow, spikeMinimum = 50, 20
	// A held-out score has worsened if the last two evaluations are more than fallErrors standard errors
	// below the best one. A loss has no standard error: it must exceed the best by the share fallShare.
	fallErrors, fallShare = 2, 0.02
)

// withoutSignal warns if the advantages of most groups are 0: such a group teaches nothing.
func withoutSignal(h *history, run *Run) string {
	share, ok := h.lately(noSignal, window)
	if !ok || share < maxNoSignal {
		return ""
	}
	reward, _ := h.lately(rewardMean, window)
	spread, _ := h.lately(rewardStd, window)
	seen := fmt.Sprintf("in %.0f%% of groups all advantages are 0, so these groups teach nothing", share*100)
	fall, fell := h.collapse()
	switch {
	case fell:
		return fmt.Sprintf("%s. The reward was %s at step %d and is %s now: the policy collapsed. Lower train.lr, "+
			"as the warning about the fall says.",
			seen, report.Number(fall.best), fall.step, report.Number(fall.now))
	case spread < 1e-9:
		return fmt.Sprintf(
			"%s. Every reward is %s. Read a file in rollouts/ and check that the reward finds the answers.", seen,
			report.Number(reward))
	case run.DynamicSampling:
		return fmt.Sprintf("%s, even with rollout.dynamic_sampling (mean reward %s). Choose prompts that are "+
			"neither too easy nor too hard.", seen, report.Number(reward))
	}
	return fmt.Sprintf("%s (mean reward %s). Choose prompts that are neither too easy nor too hard, or replace them "+
		"with rollout.dynamic_sampling.",
		seen, report.Number(reward))
}

// entropyCollapse warns if the responses to a prompt hardly differ any more although
// there is more to learn.
func entropyCollapse(h *history, _ *Run) string {
	all := h.series[entropy]
	now, ok := h.lately(entropy, entropyWindow)
	if !ok || len(all) < entropyStart+entropyWindow {
		return ""
	}
	start := mean(all[:entropyStart])
	if now > entropyLeft*start {
		return ""
	}
	reward, ok := h.lately(rewardMean, entropyWindow)
	before, known := h.meanUpTo(rewardMean, h.last-entropyWindow, entropyWindow)
	rising := known && reward-before > stillRising*math.Abs(before)
	if equal, _ := h.lately(noSignal, entropyWindow); !ok || rising || equal >= maxNoSignal {
		return ""
	}
	return fmt.Sprintf("entropy collapsed from %s to %s nats per token, and the reward stays at %s. Responses to a "+
		"prompt are nearly identical. "+
		"Continue from an earlier checkpoint with a lower train.lr, a higher loss.epsilon_high or "+
		"rollout.temperature, or loss.beta > 0.", report.Number(start), report.Number(now), report.Number(reward))
}

// cutResponses warns if many responses reach the length limit. The end of such
// a response, often its answer, is missing, and it scores as wrong.
func cutResponses(h *history, run *Run) string {
	share, ok := h.lately(cutShare, window)
	if !ok || share < maxCut {
		return ""
	}
	return fmt.Sprintf(
		"%.0f%% of responses hit rollout.max_tokens (%d), so most of them are scored without a final answer. "+
			"Raise the limit, or penalize length before it with a reward part of kind \"overlong\".", share*100,
		run.MaxTokens)
}

// mismatch warns if the sampling and training distributions differ.
func mismatch(h *history, run *Run) string {
	kl, ok := h.lately(mismatchKL, window)
	if !ok || kl <= run.Band {
		return ""
	}
	seen := fmt.Sprintf(
		"the instances' log-probabilities differ from the trainer's: mismatch/kl is %s, expected at most %s",
		report.Number(kl), report.Number(run.Band))
	if run.Band < ServerBand {
		return seen + ". Both compute the same bits, so check that all instances run this version, the trainer's " +
			"model and its kind of device."
	}
	return seen + ". Check that temperature and sampling limits (top_p, top_k, min_p) match the trainer's and that " +
		"the server computes in the weights' precision. " +
		"Bound the rest with loss.correction."
}

// gradientSpike warns if the last gradient is far larger than those before.
func gradientSpike(h *history, run *Run) string {
	all := h.series[gradNorm]
	if len(all) <= spikeMinimum || all[len(all)-1].step != h.last {
		return ""
	}
	now := all[len(all)-1].value
	before := values(all[max(0, len(all)-1-spikeWindow) : len(all)-1])
	slices.Sort(before)
	median, largest := before[len(before)/2], before[len(before)-1]
	if median <= 0 || now < spike*median || now < spikeLargest*largest {
		return ""
	}
	remedy := fmt.Sprintf("train.clip_grad = %v limits the damage", run.Clip)
	if run.Clip == 0 || run.Clip > 2*median {
		remedy = fmt.Sprintf("Set train.clip_grad near %s (now %v) to limit the damage",
			report.Number(2*median), run.Clip)
	}
	return fmt.Sprintf("gradient norm is %s, %.0f times the median of earlier steps. Check what this step trained "+
		"on. %s; a lower train.lr makes spikes rarer.",
		report.Number(now), now/median, remedy)
}

// values returns the values of points.
func values(some []point) []float64 {
	all := make([]float64, len(some))
	for i, p := range some {
		all[i] = p.value
	}
	return all
}

// heldOut warns if held-out results worsen while training results improve.
func heldOut(h *history, _ *Run) string {
	for _, name := range slices.Sorted(maps.Keys(h.series)) {
		set, kind, evaluated := report.Evaluation(name)
		all := h.series[name]
		if !evaluated || len(all) < 3 || all[len(all)-1].step != h.last {
			continue
		}
		training, sign, errors := rewardMean, 1.0, h.series["eval/"+set+"/stderr"]
		switch {
		case kind == "loss":
			training, sign, errors = actorLoss, -1, nil
		case !strings.HasPrefix(kind, "mean@"):
			continue
		}
		best := 0
		for i := range all {
			if sign*all[i].value > sign*all[best].value {
				best = i
			}
		}
		if best > len(all)-3 || !fell(all, best, sign, errors) {
			continue
		}
		now, ok := h.meanUpTo(training, h.last, window)
		then, known := h.meanUpTo(training, all[best].step, min(window, max(all[best].step, 1)))
		if !ok || !known || sign*(now-then) <= 0 {
			continue
		}
		return fmt.Sprintf("held-out %s worsened from %s to %s since step %d, while training improved from %s to "+
			"%s. The policy overfits the training prompts or exploits the reward. "+
			"Use that step's checkpoint, or train on more prompts with a lower train.lr or loss.beta > 0.",
			set, report.Number(all[best].value), report.Number(all[len(all)-1].value), all[best].step,
			report.Number(then), report.Number(now))
	}
	return ""
}

// fell reports whether both of the last two evaluations are significantly worse than
// the best.
func fell(all []point, best int, sign float64, errors []point) bool {
	for i := len(all) - 2; i < len(all); i++ {
		margin := fallShare * math.Abs(all[best].value)
		if len(errors) == len(all) {
			margin = fallErrors * math.Hypot(errors[i].value, errors[best].value)
		}
		if sign*(all[best].value-all[i].value) <= margin {
			return false
		}
	}
	return true
}

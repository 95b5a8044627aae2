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
	// mostEqual is the share of groups with equal rewards above which nearly all of
	// a step's sampling is wasted.
	mostEqual = 0.9
	// Entropy is averaged over the last entropyWindow steps and compared with the
	// first entropyStart steps. A ratio below entropyLeft is a collapse: learning
	// a task well lowers entropy a few times, not ten times.
	entropyWindow, entropyStart, entropyLeft = 10, 5, 0.1
	// stillRising is the relative growth of the reward above which entropyCollapse
	// does not warn.
	stillRising = 0.01
	// mostCut is the share of truncated responses above which truncation shapes what
	// is learned: with groups of 8, most groups contain one.
	mostCut = 0.2
	// A gradient norm is a spike if it is spike times the median and spikeLargest
	// times the largest of the last spikeWindow steps. The rule needs at least
	// spikeMinimum steps. In healthy runs norms vary threefold between steps.
	spike, spikeLargest       = 10, 3
	spikeWindow, spikeMinimum = 50, 20
	// The last two evaluations must be fallErrors standard errors below the best one.
	// A loss has no standard error; it must exceed the best by the share fallShare.
	fallErrors, fallShare = 2, 0.02
)

// equalRewards warns if most groups have equal rewards. Such a group teaches nothing,
// because advantages are differences within the group.
func equalRewards(h *history, run *Run) string {
	share, ok := h.lately(zeroStd, window)
	if !ok || share < mostEqual {
		return ""
	}
	reward, _ := h.lately(rewardMean, window)
	spread, _ := h.lately(rewardStd, window)
	seen := fmt.Sprintf("in %.0f%% of the groups all responses have the same reward, so nothing is learned from them", share*100)
	switch {
	case spread < 1e-9:
		return fmt.Sprintf("%s; every reward is %s: read a file of rollouts/ and see whether the reward finds the answers", seen, report.Number(reward))
	case run.DynamicSampling:
		return fmt.Sprintf("%s, although rollout.dynamic_sampling draws others (mean reward %s): choose prompts that are neither too easy nor too hard", seen, report.Number(reward))
	}
	return fmt.Sprintf("%s (mean reward %s): choose prompts that are neither too easy nor too hard, or let rollout.dynamic_sampling draw others in their place",
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
	before, known := h.around(rewardMean, h.last-entropyWindow, entropyWindow)
	rising := known && reward-before > stillRising*math.Abs(before)
	if equal, _ := h.lately(zeroStd, entropyWindow); !ok || rising || equal >= mostEqual {
		return ""
	}
	return fmt.Sprintf("the entropy collapsed from %s to %s nats a token and the reward stays at %s: responses to a prompt are nearly the same, and nothing new is tried; "+
		"a lower train.lr, a higher loss.epsilon_high or rollout.temperature, or loss.beta > 0 from an earlier checkpoint keep it up", report.Number(start), report.Number(now), report.Number(reward))
}

// cutResponses warns if many responses reach the length limit. The end of such
// a response, often its answer, is missing, and it scores as wrong.
func cutResponses(h *history, run *Run) string {
	share, ok := h.lately(cutShare, window)
	if !ok || share < mostCut {
		return ""
	}
	return fmt.Sprintf("%.0f%% of the responses are cut at rollout.max_tokens = %d: their answers are not seen, and length is punished instead of error; "+
		"raise it, or penalize length before the limit with a reward part of kind \"overlong\"", share*100, run.MaxTokens)
}

// mismatch warns if the sampling and training distributions differ.
func mismatch(h *history, run *Run) string {
	kl, ok := h.lately(mismatchKL, window)
	if !ok || kl <= run.Band {
		return ""
	}
	seen := fmt.Sprintf("the instances' log-probabilities differ from the trainer's: mismatch/kl is %s, expected %s at most", report.Number(kl), report.Number(run.Band))
	if run.Band < ServerBand {
		return seen + ", since both compute the same bits: are all instances of this version, on the trainer's model and kind of device?"
	}
	return seen + ": see that temperature and sampling limits (top_p, top_k, min_p) are what the trainer knows, that the server computes in the precision of the weights, " +
		"and let loss.correction bound what is left"
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
	remedy := fmt.Sprintf("train.clip_grad = %v bounds the harm", run.Clip)
	if run.Clip == 0 || run.Clip > 2*median {
		remedy = fmt.Sprintf("train.clip_grad near %s (it is %v) bounds the harm", report.Number(2*median), run.Clip)
	}
	return fmt.Sprintf("the gradient's norm is %s, %.0f times the median of the steps before: look at what this step trained on; %s, and a lower train.lr makes it rarer",
		report.Number(now), now/median, remedy)
}

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
		set, kind, _ := strings.Cut(strings.TrimPrefix(name, "eval/"), "/")
		all := h.series[name]
		if !strings.HasPrefix(name, "eval/") || len(all) < 3 || all[len(all)-1].step != h.last {
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
		now, ok := h.around(training, h.last, window)
		then, known := h.around(training, all[best].step, min(window, max(all[best].step, 1)))
		if !ok || !known || sign*(now-then) <= 0 {
			continue
		}
		return fmt.Sprintf("held-out %s became worse, %s to %s since step %d, while training became better, %s to %s: what is learned is the training prompts or a weakness of the reward; "+
			"stop at that step's checkpoint, or train on more prompts, with a lower train.lr or loss.beta > 0",
			set, report.Number(all[best].value), report.Number(all[len(all)-1].value), all[best].step, report.Number(then), report.Number(now))
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

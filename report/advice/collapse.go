package advice

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/report"
)

const (
	// sureErrors is the number of standard errors by which two means over window steps must differ to
	// count as different.
	sureErrors = 4
	// maxLostShare is the share of a rise, or of the reward at the start, that a reward may lose.
	maxLostShare = 0.5
	// minFall is the share of the reward's magnitude below which a fall is not worth a warning.
	minFall = 0.1
	// notableChange is the factor by which entropy must change to be worth naming.
	notableChange = 2
)

// fallen describes a mean reward that fell. start, best and now are means over window steps: the first
// ones, those with the highest mean and the last ones.
type fallen struct {
	start, best, now float64
	step             int  // the last step of best
	rose             bool // best is significantly above start
}

// collapse describes how the mean reward fell. ok reports whether it fell far below its best. collapse
// estimates the noise from the steps of the three means.
func (h *history) collapse() (f fallen, ok bool) {
	all := h.series[rewardMean]
	now := h.recent(rewardMean, window)
	if now == nil || len(all) < 3*window {
		return f, false
	}
	end := window // index after the last step of the best mean
	for i := window; i <= len(all)-window; i++ {
		if mean(all[i-window:i]) > mean(all[end-window:end]) {
			end = i
		}
	}
	first, best := all[:window], all[end-window:end]
	f = fallen{start: mean(first), best: mean(best), now: mean(now), step: all[end-1].step}
	sure := sureErrors * math.Sqrt((variance(first)+variance(best)+variance(now))/3*2/window)
	fall, rise := f.best-f.now, f.best-f.start
	f.rose = rise > sure
	far := f.rose && fall >= maxLostShare*rise || f.start > 0 && f.now < maxLostShare*f.start
	return f, fall > sure && far && fall >= minFall*max(math.Abs(f.best), math.Abs(f.now))
}

// variance returns the unbiased variance of the values.
func variance(some []point) float64 {
	m, sum := mean(some), 0.0
	for _, p := range some {
		sum += (p.value - m) * (p.value - m)
	}
	return sum / float64(len(some)-1)
}

// collapsed warns if the reward fell after it rose, or fell from the start. A reward that has
// risen works, so the update is the first suspect.
func collapsed(h *history, run *Run) string {
	f, ok := h.collapse()
	if !ok {
		return ""
	}
	risen := ""
	if f.rose {
		risen = ", after it had risen from " + report.Number(f.start)
	}
	text := fmt.Sprintf(
		"the reward fell from %s at step %d to %s%s%s. The usual cause is a learning rate that is too high. "+
			"Continue from a checkpoint before the fall with a lower train.lr", report.Number(f.best), f.step,
		report.Number(f.now), risen, h.entropySince(f.step))
	if run.LR > 0 {
		text += fmt.Sprintf(", such as %.1g (now %v)", run.LR/3, run.LR)
	}
	text += fmt.Sprintf(". If it falls again, lower loss.epsilon_high (now %v) and train.clip_grad (now %v)",
		run.EpsilonHigh, run.Clip)
	if run.Beta > 0 {
		text += fmt.Sprintf(" or raise loss.beta (now %v)", run.Beta)
	} else {
		text += ", or set loss.beta > 0"
	}
	return text + ". Look at the reward itself only after that."
}

// entropySince says how entropy has changed since a step, or returns "" if it hardly has.
func (h *history) entropySince(step int) string {
	now, ok := h.lately(entropy, window)
	then, known := h.meanUpTo(entropy, step, window)
	switch {
	case !ok || !known || then <= 0:
		return ""
	case now >= notableChange*then:
		return fmt.Sprintf(", and entropy rose from %s to %s nats per token", report.Number(then), report.Number(now))
	case now <= then/notableChange:
		return fmt.Sprintf(", and entropy fell from %s to %s nats per token", report.Number(then), report.Number(now))
	}
	return ""
}

package loss

import "slices"

// The estimators that need the rewards of all groups of an optimizer step, so
// that no group can be trained before the last is in (Hu et al. 2025, arXiv
// 2501.03262, "REINFORCE++", "global advantage normalization").
const (
	// BatchAdvantage is (r - mean) / (std + 1e-4) over the batch: REINFORCE++,
	// which also works with one response a prompt.
	BatchAdvantage = "batch"
	// BatchBaselineAdvantage is d / (std(d) + 1e-4) over the batch with d the
	// reward less its group's mean: REINFORCE++ with baseline. The mean of d, which
	// the paper subtracts too, is 0.
	BatchBaselineAdvantage = "batch-baseline"
)

// WholeBatch says that a kind of advantage needs all groups of an optimizer step.
func WholeBatch(kind string) bool { return kind == BatchAdvantage || kind == BatchBaselineAdvantage }

// BatchAdvantages estimates the advantages of all responses of an optimizer step
// from the rewards of its groups. Each response counts once, whatever its length.
// The result of a group has the same bits whatever the order of the groups. With
// "batch-baseline" it is exactly 0 where a group's rewards are Equal, with "batch"
// where the batch's are. A reward that is not finite makes all advantages NaN.
// The kinds that need no batch are those of Advantages; an unknown one panics.
func BatchAdvantages(kind string, groups [][]float64) [][]float64 {
	advantages := make([][]float64, len(groups))
	for i, rewards := range groups {
		switch kind {
		case BatchAdvantage:
			advantages[i] = slices.Clone(rewards)
		case BatchBaselineAdvantage:
			advantages[i] = Advantages(GroupMeanAdvantage, rewards)
		default:
			advantages[i] = Advantages(kind, rewards)
		}
	}
	if WholeBatch(kind) {
		whiten(advantages, kind == BatchAdvantage)
	}
	return advantages
}

// whiten divides all values by their deviation, in place, and subtracts their
// mean first where it is not known to be 0.
func whiten(groups [][]float64, subtract bool) {
	all := slices.Concat(groups...)
	slices.Sort(all) // the order of the sums
	_, mean := centre(all)
	equal := Equal(all)
	if !subtract {
		mean *= 0
	}
	divisor := deviation(all, mean) + stdFloor
	for _, values := range groups {
		for i, v := range values {
			values[i] = v - mean
			if equal {
				values[i] = 0
			}
		}
		divide(values, divisor)
	}
}

package loss

import "slices"

// WholeBatch reports whether a kind of advantage needs all groups of an optimizer
// step.
func WholeBatch(kind string) bool { return kind == BatchAdvantage || kind == BatchBaselineAdvantage }

// Unnormalized reports whether a kind of advantage is not divided by a standard deviation, so
// that it grows with the rewards.
func Unnormalized(kind string) bool {
	return kind == GroupMeanAdvantage || kind == LeaveOneOutAdvantage || kind == RewardAdvantage
}

// BatchAdvantages estimates the advantages of all responses of an optimizer step from
// the rewards of its groups. Each response counts once, whatever its length. The order
// of the groups does not change a bit of the result. The advantages are exactly 0 if
// the rewards are Equal: those of the group with "batch-baseline", those of the batch
// with "batch". A reward or standard deviation that is not finite makes the advantages NaN. BatchAdvantages
// also takes the kinds of Advantages and panics on an unknown kind.
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

// whiten divides all values by their standard deviation, in place. It first subtracts
// their mean if subtract is set. Otherwise their mean must be 0 apart from rounding.
func whiten(groups [][]float64, subtract bool) {
	all := slices.Concat(groups...)
	slices.Sort(all) // sums do not depend on the order of groups
	_, mean := centre(all)
	equal := Equal(all)
	if !subtract {
		mean *= 0 // removes rounding errors, but keeps a NaN, which must reach all values
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

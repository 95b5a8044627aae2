package loss

// Preset is the method of a paper as far as a loss goes, or false for a name
// that is not one of them. What a method does to sampling is not in it: DAPO and
// others draw prompts anew where a group's rewards are Equal.
func Preset(name string) (Config, bool) {
	c := Default()
	switch name {
	case "grpo": // Shao et al. 2024, arXiv 2402.03300
		c.Beta, c.Aggregation = 0.04, SequenceMean
	case "dr-grpo": // Liu et al. 2025, arXiv 2503.20783: neither length nor deviation divides
		c.Advantage, c.Aggregation = GroupMeanAdvantage, Constant
	case "dapo": // Yu et al. 2025, arXiv 2503.14476: clip-higher, token mean, over-long shaping
		c.EpsilonHigh, c.Aggregation, c.Overlong = 0.28, TokenMean, 4096
	case "gspo": // Zheng et al. 2025, arXiv 2507.18071, section 5.1
		c.Kind, c.EpsilonLow, c.EpsilonHigh, c.Aggregation = GSPO, 3e-4, 4e-4, SequenceMean
	case "gspo-token": // the same, section 4.3
		c.Kind, c.EpsilonLow, c.EpsilonHigh, c.Aggregation = GSPOToken, 3e-4, 4e-4, SequenceMean
	case "cispo": // MiniMax 2025, arXiv 2506.13585: no lower bound; the upper one is not in the paper
		c.Kind, c.EpsilonLow, c.EpsilonHigh, c.Aggregation = CISPO, 1, 4, TokenMean
	case "reinforce": // Williams 1992
		c.Kind, c.Advantage, c.Aggregation = REINFORCE, RewardAdvantage, Constant
	case "rloo": // Ahmadian et al. 2024, arXiv 2402.14740
		c.Kind, c.Advantage, c.Aggregation = REINFORCE, LeaveOneOutAdvantage, Constant
	case "reinforce++": // Hu et al. 2025, arXiv 2501.03262
		c.Advantage = BatchAdvantage
	case "reinforce++-baseline": // the same, for groups
		c.Advantage = BatchBaselineAdvantage
	case "pf-ppo": // Zhang et al. 2025, arXiv 2409.06957: two of the responses
		c.Filter, c.Keep = BestWorst, 2
	case "dual-clip": // Ye et al. 2020, arXiv 1912.09729
		c.DualClip = 3
	case "tis": // Yao et al. 2025
		c.Correction, c.CorrectionHigh = Truncate, 2
	case "icepop": // Ling Team 2025, arXiv 2510.18855
		c.Correction, c.CorrectionLow, c.CorrectionHigh = Mask, 0.5, 5
	default:
		return Config{}, false
	}
	return c, true
}

package memory

// Swap is the memory of a run with train.swap, in bytes: training and sampling take turns with the device's.
type Swap struct {
	Stays    int64 `json:"stays"`    // on the device: published versions of the weights
	Training int64 `json:"training"` // on the device while the run trains, activations included
	Sampling int64 `json:"sampling"` // on the device while instances sample
	Device   int64 `json:"device"`   // the most on the device
	Host     int64 `json:"host"`     // moments and reference in host memory
}

// swap returns the memory of a run that swaps. Of the Copies of the weights, two are published versions
// and one is the policy, which has the values of a published version while instances sample.
func (n *Need) swap() *Swap {
	each, activations := n.Weights/int64(n.Copies), n.Activations
	if len(n.Ranks) == 0 {
		activations += activations / 8 // passes of one rank may be padded, so that the device replays them
	}
	s := &Swap{Stays: n.Whole + 2*each, Training: n.Weights - 2*each + n.Gradients + n.Moments + activations,
		Sampling: n.instances(), Host: n.Weights - 3*each + n.Moments}
	s.Device = s.Stays + max(s.Training, s.Sampling)
	return s
}

package memory

// Swap is the memory of a run with train.swap, in bytes. Training and sampling take turns with the device's memory.
type Swap struct {
	Stays    int64 `json:"stays"`    // on the device: published versions of the weights
	Training int64 `json:"training"` // on the device while the run trains, activations included
	Sampling int64 `json:"sampling"` // on the device while instances sample
	Device   int64 `json:"device"`   // maximum on the device
	Host     int64 `json:"host"`     // moments and reference in host memory
}

// swap returns the memory of a run that swaps. Of the Copies of the weights, two are published versions, which
// stay on the device. Another is the policy, which needs no host memory, since a published version has its values
// while instances sample. A fourth is the reference.
func (n *Need) swap() *Swap {
	weights, activations := n.Weights/int64(n.Copies), n.Activations
	if len(n.Ranks) == 0 {
		activations += activations / 8 // passes of one rank may be padded, so that the device can replay them
	}
	s := &Swap{Stays: n.Whole + 2*weights, Training: n.Weights - 2*weights + n.Gradients + n.Moments + activations,
		Sampling: n.instances(), Host: n.Weights - 3*weights + n.Moments}
	s.Device = s.Stays + max(s.Training, s.Sampling)
	return s
}

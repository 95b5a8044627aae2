package sharded

import (
	"errors"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
	"github.com/easyrl/easyrl/tri_model/sharded/reduce"
)

// action is what the trainer asks of a rank.
type action uint8

const (
	setUp      action = iota + 1 // hold Setup's part of a decoder
	forward                      // run Layout forward; the last stage answers with log-probabilities
	derivative                   // run the oldest waiting micro-batch backward; Values are the derivative of its loss
	// compute log-probabilities of Layout under Which at Temperature; 0 is that of training
	score
	hold    // copy the policy as Version
	fill    // set parameter Param of Which to Values
	save    // copy what the rank owns of checkpoint Version to host memory
	sampled // make room in held for the weights that sampled step Version
	update  // reduce the gradients and update the policy
	barrier // answer
	discard // clear the gradients
	swapOut // free what only training needs; answer
	swapIn  // revert swapOut; answer
	leave   // end; the rank's last answer, too
)

// which is some weights of a rank.
type which uint8

const (
	policy which = iota
	reference
	first
	second
	held // the last version
	old  // the version that sampled the last update's rollouts
)

// command is a message from the trainer to a rank. Layout and Values belong to the message once it is
// sent: a rank of this process uses their memory.
type command struct {
	Action  action
	Setup   *Setup
	Layout  *attention.Layout
	Which   which
	Param   int
	Version int64
	Ended   ending // of leave
	Update  backend.Update
	Values  []float32 // follow the encoded message

	Temperature float32
}

// Setup is what a rank needs to know before it starts.
type Setup struct {
	Mesh     parallel.Mesh
	Shape    model.Config
	Models   trimodel.Config
	Reduce   bool // see Config.Reduce
	Zero     int  // see Config.Zero
	Sequence bool // see Config.Sequence
}

// answer is a message from a rank to the trainer.
type answer struct {
	Action action
	Logp   backend.Logprobs
	Norm   float64
	Memory [npu.NumPurposes]int64
	Fault  *fault

	rank int
}

// fault is an error that another process can read.
type fault struct {
	Text string
	Is   int // index in sentinels, or -1
	// Culprit is the rank that failed; -1 for the one that reports.
	Culprit int
	Addr    string // of the culprit; may be empty
	// Remote is set if the cause is on another rank, whose fault says more.
	Remote bool
}

// sentinels returns the errors after which a rank continues and the trainer decides. fault.Is is an
// index in them, so their order is the same in all processes.
func sentinels() []error { return []error{optim.ErrOutOfRange, optim.ErrNonFinite, model.ErrNotFinite} }

// faultOf returns err for another process, nil for nil. A RankError's rank becomes the culprit.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{
		Text:    err.Error(),
		Is:      slices.IndexFunc(sentinels(), func(s error) bool { return errors.Is(err, s) }),
		Culprit: -1,
		Remote:  errors.As(err, new(reduce.RemoteError)),
	}
	if other := (*parallel.RankError)(nil); errors.As(err, &other) {
		f.Culprit = other.Rank
		f.Addr = other.Addr
		f.Text = other.Err.Error()
	}
	return f
}

// Error returns the text.
func (f *fault) Error() string { return f.Text }

// Unwrap returns the sentinel.
func (f *fault) Unwrap() error {
	if f.Is < 0 || f.Is >= len(sentinels()) {
		return nil
	}
	return sentinels()[f.Is]
}

// of returns a fault that a rank reports, with the name of the rank that failed.
func (f *fault) of(rank int) error {
	if f.Culprit >= 0 {
		rank = f.Culprit
	}
	return &parallel.RankError{Rank: rank, Addr: f.Addr, Err: f}
}

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
	// The first command: allocate the rank's part of a decoder, as Setup describes.
	setUp action = iota + 1
	// Run Layout, which Version has sampled, forward. The last stage answers with log-probabilities.
	forward
	// To the last stage: run the oldest micro-batch without a derivative backward. Values are the
	// derivative of its loss by its log-probabilities. The first stage answers when the micro-batch has ended.
	derivative
	// Compute log-probabilities of Layout under Version, 0 for the policy, at Temperature. The last stage
	// answers with them.
	score
	hold    // copy the policy as Version
	fill    // set parameter Param of Tensors to Values
	save    // copy the values that the rank owns to host memory, as copy number Version of the state after Steps
	sampled // make room for the weights that sampled step Version (trimodel.Set.HoldSampled)
	update  // reduce the gradients, update the policy and answer with the norm
	barrier // answer, after all earlier commands
	discard // clear the gradients
	swapOut // free memory that only training needs, and answer
	swapIn  // revert swapOut, and answer
	leave   // end; it is also the action of the rank's last answer
)

// command is a message from the trainer to a rank; the actions describe its fields.
type command struct {
	Action  action
	Setup   *Setup
	Layout  *attention.Layout
	Tensors trimodel.Tensors
	Param   int // index among the rank's parameters or, for moments, pieces
	Version int64
	Steps   int    // number of completed steps
	Ended   ending // how the run ended, for leave
	Update  backend.Update
	Values  []float32 // see wire

	Temperature float32 // for score; 0 is the temperature of training
}

// Setup describes the models and the mesh to a rank.
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
	Action  action                 // action of the command, or leave after a failure
	Outputs backend.Outputs        // for forward and score
	Norm    float64                // for update
	Memory  [npu.NumPurposes]int64 // bytes of device memory by purpose, for update
	Fault   *fault                 // failure of the command or, for leave, of the rank; nil for none
	Passes  [][]uint64             // for update: linear sums of the rank's gradients, by micro-batch and parameter
	Total   []uint64               // for update: those of the part of the summed gradients that the rank counts

	rank int // the rank that answers; the trainer's side sets it
}

// fault is an error that can be sent to another process.
type fault struct {
	Text    string
	Is      int    // index in sentinels of the error that it wraps, or -1
	Culprit int    // the rank that failed; -1 for the rank that reports the fault
	Addr    string // address of the culprit; may be empty
	Lost    bool   // see parallel.RankError
	Remote  bool   // whether the cause is on another rank, whose own fault names the parameter
}

// sentinels returns the errors after which a rank continues and the trainer decides. fault.Is is an
// index in the result, so all processes need the same order.
func sentinels() []error { return []error{optim.ErrOutOfRange, optim.ErrNonFinite, model.ErrNotFinite} }

// faultOf converts err to a fault, and nil to nil. The rank of a RankError becomes the culprit.
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
	var rankErr *parallel.RankError
	if errors.As(err, &rankErr) {
		f.Culprit = rankErr.Rank
		f.Addr = rankErr.Addr
		f.Lost = rankErr.Lost
		f.Text = rankErr.Err.Error()
	}
	return f
}

// Error returns the text.
func (f *fault) Error() string { return f.Text }

// Unwrap returns the sentinel that the fault wraps, or nil.
func (f *fault) Unwrap() error {
	if f.Is < 0 || f.Is >= len(sentinels()) {
		return nil
	}
	return sentinels()[f.Is]
}

// of returns the error for a fault that a rank reports: a RankError with the culprit.
func (f *fault) of(rank int) error {
	if f.Culprit >= 0 {
		rank = f.Culprit
	}
	return &parallel.RankError{Rank: rank, Addr: f.Addr, Err: f, Lost: f.Lost}
}

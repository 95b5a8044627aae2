package wire

// Message is the header of a frame. Its fields are those of its kind.
type Message interface{ Kind() string }

// Modes in which replicas work.
const (
	Auto     = "auto"     // free if weights and gradients fit, otherwise lockstep
	Free     = "free"     // each replica holds all weights and gradients
	Lockstep = "lockstep" // replicas hold shards and receive one sequence of messages
)

// BFloat16 is a type that ranks compute in.
const BFloat16 = "bfloat16"

// Values of Write.What.
const (
	Weights = "weights" // model.safetensors
	State   = "state"   // weights in float32, and the optimizer's moments
	Adapter = "adapter" // the adapter's folder
)

// Hello introduces a rank.
type Hello struct {
	Token      string            `json:"token"`
	Rank       int               `json:"rank"`
	World      int               `json:"world"`
	Host       string            `json:"host"`
	PID        int               `json:"pid"`
	Device     string            `json:"device"` // such as "cpu" or "cuda:0"
	DeviceName string            `json:"device_name"`
	Memory     int64             `json:"memory"`   // bytes of device memory
	Versions   map[string]string `json:"versions"` // versions of Python and its packages, by name
}

// Welcome makes a rank load its models. The trainer sends it once all ranks have sent Hello.
type Welcome struct {
	Model       string    `json:"model"`     // folder of the weights
	State       string    `json:"state"`     // folder of weights and moments; empty for none
	Updates     int       `json:"updates"`   // number of updates before State was written
	Reference   string    `json:"reference"` // folder of the reference's weights; empty for none
	DP          int       `json:"dp"`
	TP          int       `json:"tp"`
	DType       string    `json:"dtype"`
	Mode        string    `json:"mode"`
	Recompute   bool      `json:"recompute"`
	Temperature float64   `json:"temperature"`
	Optimizer   Optimizer `json:"optimizer"`
	LoRA        LoRA      `json:"lora"`
}

// Optimizer sets AdamW's constants.
type Optimizer struct {
	Beta1       float64 `json:"beta1"`
	Beta2       float64 `json:"beta2"`
	Eps         float64 `json:"eps"`
	WeightDecay float64 `json:"weight_decay"`
}

// LoRA sets the shape of an adapter. Rank 0 trains all weights.
type LoRA struct {
	Rank  int     `json:"rank"`
	Alpha float64 `json:"alpha"`
}

// Refused answers a Hello that the trainer does not accept.
type Refused struct {
	Error string `json:"error"`
}

// Ready reports that a rank has loaded its models.
type Ready struct {
	Parameters   int64  `json:"parameters"` // number of values of the model
	Trained      int64  `json:"trained"`    // number of values that training changes
	Vocabulary   int    `json:"vocabulary"`
	MaxPositions int    `json:"max_positions"`
	Packed       bool   `json:"packed"`    // whether a prompt is computed once for all its responses
	Attention    string `json:"attention"` // name of the implementation of attention
	Reason       string `json:"reason"`    // why faster attention was rejected; empty if none was
	// Slowdown is the cost of Reason, as a factor of at least 1, or 0 if unknown. If Packed is set, it is
	// the time of a pass relative to separate sequences through the model's own attention; otherwise, the
	// rows of a group relative to computing its prompt once.
	Slowdown float64 `json:"slowdown"`
	Mode     string  `json:"mode"` // Free or Lockstep
	DType    string  `json:"dtype"`
	Memory   Memory  `json:"memory"`
	FLOPs    FLOPs   `json:"flops"`
}

// Memory is the memory that a rank uses on its device, in bytes.
type Memory struct {
	Weights     int64 `json:"weights"`
	Gradients   int64 `json:"gradients"`
	Optimizer   int64 `json:"optimizer"`
	Activations int64 `json:"activations"`
}

// FLOPs counts the floating-point operations of a forward and backward pass.
type FLOPs struct {
	Row    float64 `json:"row"`    // for each row, without Key
	Target float64 `json:"target"` // for each target
	Key    float64 `json:"key"`    // for each pair of a query row and a key that it attends to, in all layers
}

// Forward orders the log-probabilities of a micro-batch, whose layout is in its arrays.
// Without arrays the micro-batch is empty.
type Forward struct {
	ID int64 `json:"id"`
}

// Backward orders the gradients of a micro-batch. Array "gradient" holds the loss's
// derivative by each log-probability.
type Backward struct {
	ID int64 `json:"id"`
}

// Discard orders a rank to forget all micro-batches without Backward, and all gradients.
type Discard struct{}

// Score orders the log-probabilities of a layout without gradients.
type Score struct {
	ID          int64   `json:"id"`
	Model       string  `json:"model"` // model or adapter folder; empty for the current policy
	Temperature float64 `json:"temperature"`
}

// Step orders an optimizer update.
type Step struct {
	Update int     `json:"update"` // from 1
	Scale  float64 `json:"scale"`
	LR     float64 `json:"lr"`
	Clip   float64 `json:"clip"` // 0 for none
}

// Write orders a rank to write files to a folder that exists.
type Write struct {
	What   string `json:"what"` // Weights, State or Adapter
	Folder string `json:"folder"`
}

// Beat shows that its sender is alive.
type Beat struct{}

// End ends a rank.
type End struct{}

// Logprobs answers Forward and Score. Arrays "policy", "entropy" and "reference" have one
// value a target.
type Logprobs struct {
	ID      int64   `json:"id"`
	Seconds float64 `json:"seconds"`
}

// Passed answers Backward.
type Passed struct {
	ID      int64   `json:"id"`
	Seconds float64 `json:"seconds"`
}

// Stepped answers Step.
type Stepped struct {
	Update        int      `json:"update"`
	Norm          *float64 `json:"norm"`           // norm of the scaled gradients before clipping; null if not finite
	Finite        bool     `json:"finite"`         // whether the gradients were finite
	WeightsFinite bool     `json:"weights_finite"` // whether the weights are finite after the update
	Memory        Memory   `json:"memory"`
	Seconds       float64  `json:"seconds"`
}

// Written answers Write.
type Written struct {
	Seconds float64 `json:"seconds"`
}

// Failed reports why a rank exits.
type Failed struct {
	Error string `json:"error"` // one line
	// OutOfMemory lists the IDs of the micro-batches, and of the score, whose activations the rank held
	// when a pass ran out of memory. It is empty for other failures.
	OutOfMemory []int64 `json:"out_of_memory,omitempty"`
}

// Kind returns "hello".
func (Hello) Kind() string { return "hello" }

// Kind returns "welcome".
func (Welcome) Kind() string { return "welcome" }

// Kind returns "refused".
func (Refused) Kind() string { return "refused" }

// Kind returns "ready".
func (Ready) Kind() string { return "ready" }

// Kind returns "forward".
func (Forward) Kind() string { return "forward" }

// Kind returns "backward".
func (Backward) Kind() string { return "backward" }

// Kind returns "discard".
func (Discard) Kind() string { return "discard" }

// Kind returns "score".
func (Score) Kind() string { return "score" }

// Kind returns "step".
func (Step) Kind() string { return "step" }

// Kind returns "write".
func (Write) Kind() string { return "write" }

// Kind returns "beat".
func (Beat) Kind() string { return "beat" }

// Kind returns "end".
func (End) Kind() string { return "end" }

// Kind returns "logprobs".
func (Logprobs) Kind() string { return "logprobs" }

// Kind returns "passed".
func (Passed) Kind() string { return "passed" }

// Kind returns "stepped".
func (Stepped) Kind() string { return "stepped" }

// Kind returns "written".
func (Written) Kind() string { return "written" }

// Kind returns "failed".
func (Failed) Kind() string { return "failed" }

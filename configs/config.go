// Package configs holds the shipped *.toml and their shape as a Go struct; it is
// the only reader of TOML.
//
// A run is Default, overridden by its files from left to right and then by its
// settings. Unknown keys are errors, and every value records its origin.
package configs

//go:generate go test . -run TestConfigurationPage -args -write

import (
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/torch"
)

// Config is the whole configuration of a run. Paths are relative to the working directory.
type Config struct {
	Run        Run               `toml:"run"`
	Model      Model             `toml:"model"`
	Data       Data              `toml:"data"`
	Rollout    Rollout           `toml:"rollout"`
	Reward     reward.Config     `toml:"reward"`
	Loss       loss.Config       `toml:"loss"`
	Train      Train             `toml:"train"`
	SFT        SFT               `toml:"sft"`
	Inference  Inference         `toml:"inference"`
	Device     Device            `toml:"device"`
	Parallel   parallel.Settings `toml:"parallel"`
	Torch      torch.Settings    `toml:"torch"`
	Checkpoint Checkpoint        `toml:"checkpoint"`
	Eval       Eval              `toml:"eval"`
	Log        Log               `toml:"log"`
	Control    Control           `toml:"control"`
}

// Modes of a run: when training starts and which cores it shares with sampling.
const (
	// PeriodicAsync trains on groups as they arrive.
	PeriodicAsync = "periodic-async"
	// Sync waits for the whole batch, then trains.
	Sync = "sync"
	// Colocated alternates sampling and training, each on all cores.
	Colocated = "colocated"
)

// Run names a run and sets its length.
type Run struct {
	// Name of the run; by default the name of its first file.
	Name string `toml:"name"`
	// Output folder; by default runs/<name>.
	Dir string `toml:"dir"`
	// Seed of all randomness: data order, sampling, initial weights.
	Seed uint64 `toml:"seed"`
	// Number of steps. Each step samples with fresh weights.
	Steps int `toml:"steps" unit:"steps"`
	// When training starts and which cores it shares with sampling: "periodic-async", "sync" or
	// "colocated".
	Mode string `toml:"mode"`
}

// Model sets where the policy starts: a model folder or random weights.
type Model struct {
	// Hugging Face model folder.
	Path string `toml:"path"`
	// Init makes random weights instead.
	Init Init `toml:"init"`
}

// Init describes a randomly initialized model.
type Init struct {
	// Path of a config.json. Its folder holds the tokenizer files.
	Config string `toml:"config"`
}

// Data sets the prompts for training and evaluation.
type Data struct {
	// Files of prompts to train on; glob patterns are allowed.
	Train []string `toml:"train"`
	// Share of each entry of Train among the sampled prompts. Without weights, every prompt
	// counts the same.
	Weights []float64 `toml:"weights"`
	// Files of prompts to evaluate on; glob patterns are allowed. Each file is a set, reported
	// under its name.
	Eval []string `toml:"eval"`
	// Field with the prompt, as text or chat messages; dots reach nested fields. If empty,
	// easyrl recognizes the usual layouts.
	PromptKey string `toml:"prompt_key"`
	// Field with the reference answer for the reward; same rules as for PromptKey. easyrl drops
	// prompts whose reference answer reward "math" or "gsm8k" finds wrong, and refuses a file with
	// more than 1% of them.
	AnswerKey string `toml:"answer_key"`
	// Field with the name of the data source; same rules as for PromptKey. If empty, it is
	// "data_source" or, without such a field, the file name.
	SourceKey string `toml:"source_key"`
	// When to apply the model's chat template: "auto" for conversations only, "chat" also for
	// plain text, "none" never.
	Template string `toml:"template"`
	// System turn for conversations without one. Plain text gets it as a prefix.
	System string `toml:"system"`
	// Turns on thinking in chat templates that support it.
	Thinking bool `toml:"thinking"`
	// Maximum length of a prompt. Longer prompts are dropped and counted.
	MaxPromptTokens int `toml:"max_prompt_tokens" unit:"tokens"`
	// Reshuffle the prompts in each epoch.
	Shuffle bool `toml:"shuffle"`
}

// Uses of a model's chat template.
const (
	// TemplateAuto applies the template to conversations and leaves plain text unchanged.
	TemplateAuto = "auto"
	// TemplateChat applies it to both, with plain text as the user's turn.
	TemplateChat = "chat"
	// TemplateNone applies no template and rejects conversations.
	TemplateNone = "none"
)

// Rollout sets how the responses of a step are sampled.
type Rollout struct {
	// Number of groups per step.
	PromptsPerStep int `toml:"prompts_per_step" unit:"prompts"`
	// Number of responses per prompt.
	GroupSize int `toml:"group_size" unit:"responses"`
	// Sampling temperature.
	Temperature float64 `toml:"temperature"`
	// Sample from the likeliest tokens that make up this probability; 1 keeps all.
	TopP float64 `toml:"top_p" unit:"fraction"`
	// Sample from this many of the likeliest tokens; 0 keeps all.
	TopK int `toml:"top_k" unit:"tokens"`
	// Maximum length of a response.
	MaxTokens int `toml:"max_tokens" unit:"tokens"`
	// How many times per step a prompt is replaced if the advantages of all its trained responses
	// are 0; 0 never replaces one, nor does loss.advantage = "batch", whose advantages depend on
	// the other groups. Rollout files list replaced groups after the trained ones, with
	// "replaced": true. The metric reward/sampled_mean averages over both, reward/mean over
	// trained groups.
	DynamicSampling int `toml:"dynamic_sampling" unit:"times"`
	// Strings that end a response. The response keeps the string that ended it.
	Stop []string `toml:"stop"`
}

// Backends of the trainer.
const (
	// EasyRL computes with easyrl's own kernels.
	EasyRL = "easyrl"
	// PyTorch computes on PyTorch ranks.
	PyTorch = "torch"
)

// Train sets how weights are updated.
type Train struct {
	optim.Config
	// What computes the models: "easyrl", its own kernels, or "torch", PyTorch ranks.
	Backend string `toml:"backend"`
	// Maximum tokens per forward and backward pass. With easyrl's own kernels it changes no
	// result: they cut a group into passes of up to 4,096 tokens, or twice its prompt, even if
	// the limit is lower.
	MicroBatchTokens int `toml:"micro_batch_tokens" unit:"tokens"`
	// Number of optimizer steps into which each step is divided, in the order of its prompts. A
	// group that finishes before its turn waits.
	Minibatches int `toml:"minibatches" unit:"optimizer steps"`
	// Save memory by recomputing activations in the backward pass. Costs time; the result is
	// bit-identical.
	Recompute bool `toml:"recompute"`
	// Share the memory of a device between training and sampling: while the instances sample, host
	// memory holds what only training needs, and while the run trains, their caches are freed. The
	// result is bit-identical. Needs run.mode = "colocated" and easyrl's own kernels.
	Swap bool `toml:"swap"`
}

// SFT sets supervised training with easyrl sft.
type SFT struct {
	// Files of demonstrations; glob patterns are allowed.
	Data []string `toml:"data"`
	// Files of held-out demonstrations. Their loss is reported under the file name, as often as
	// eval.every says.
	Eval []string `toml:"eval"`
	// Field with the response. If empty, easyrl recognizes the usual layouts.
	ResponseKey string `toml:"response_key"`
	// Assistant turns of a conversation to train: "last", or "all", each as its own
	// demonstration after the turns before it.
	Turns string `toml:"turns"`
	// Number of optimizer steps.
	Steps int `toml:"steps" unit:"steps"`
	// Number of demonstrations per step.
	BatchSize int `toml:"batch_size" unit:"demonstrations"`
}

// Assistant turns of a conversation to train.
const (
	// LastTurn trains the final assistant turn.
	LastTurn = "last"
	// AllTurns trains every assistant turn.
	AllTurns = "all"
)

// Kinds of inference instances that are not servers. Package remote has the others.
const (
	// Embedded instances run in this process.
	Embedded = "embedded"
)

// Inference sets which instances sample.
type Inference struct {
	// Where sampling runs: "embedded" in this process, otherwise the kind of the servers in
	// Endpoints.
	Kind string `toml:"kind"`
	// Number of embedded instances; by default 1, or 0 with servers.
	Instances int `toml:"instances" unit:"instances"`
	// Threads of each embedded instance; 0 divides the cores.
	Threads int `toml:"threads" unit:"threads"`
	// Maximum responses that an instance samples at once.
	MaxRunning int `toml:"max_running" unit:"responses"`
	// Server URLs. Prefix a server of another kind, as in vllm=http://….
	Endpoints []string `toml:"endpoints"`
	// Minimum instances with current weights. With fewer, the run waits; after WaitSeconds it
	// saves a checkpoint and stops.
	MinInstances int `toml:"min_instances" unit:"instances"`
	// How long a run waits for MinInstances, at its start and later.
	WaitSeconds int `toml:"wait_seconds" unit:"s"`
	// Folder shared with the servers, for those that read weights from files; by default
	// weights in the run's folder.
	WeightsDir string `toml:"weights_dir"`
	// File with one server per line, as in Endpoints, or dns:NAME:PORT. Servers added to it
	// join the run, removed ones leave.
	Watch string `toml:"watch"`
	// File with the bearer token of the servers.
	TokenFile string `toml:"token_file"`
}

// Kinds of devices.
const (
	// CPU is always available.
	CPU = "cpu"
	// CUDA is an NVIDIA GPU.
	CUDA = "cuda"
	// Ascend is a Huawei NPU.
	Ascend = "ascend"
)

// Device sets what the trainer computes on.
type Device struct {
	// Device of the trainer and of embedded instances: "cpu", "cuda", "ascend", or the path of a kernel library.
	Kind string `toml:"kind"`
	// Trainer threads on a CPU; 0 uses the cores that inference leaves, and those of idle
	// instances.
	Threads int `toml:"threads" unit:"threads"`
	// Arithmetic of easyrl's kernels, in training and in embedded instances: "float32", or "bf16", with bfloat16
	// weights and activations. -resume, ranks and easyrl servers need the same (docs/numerics.md).
	Numerics string `toml:"numerics"`
}

// Checkpoint sets when a run is saved.
type Checkpoint struct {
	// Save every N steps and at the end. 0 saves only at the end.
	Every int `toml:"every" unit:"steps"`
	// Number of recent checkpoints to keep, besides the best one, to which `checkpoints/best` is a link. 0 keeps all.
	Keep int `toml:"keep" unit:"checkpoints"`
}

// Eval sets when and how a run is evaluated on data.eval.
type Eval struct {
	// Evaluate every N steps, before the first step and after the last. If unset, N is by default
	// a tenth of the run's steps if data.eval (sft.eval for easyrl sft) is set. 0 never evaluates.
	Every int `toml:"every" unit:"steps"`
	// Number of responses per prompt.
	K int `toml:"k" unit:"responses"`
	// Sampling temperature; 0 is greedy.
	Temperature float64 `toml:"temperature"`
	// Sample from the likeliest tokens that make up this probability; 1 keeps all.
	TopP float64 `toml:"top_p" unit:"fraction"`
	// Sample from this many of the likeliest tokens; 0 keeps all.
	TopK int `toml:"top_k" unit:"tokens"`
	// Set to "any" to apply reward.marks = "any" only in evaluations.
	Marks string `toml:"marks"`
	// Evaluate only the first N prompts of each file; 0 takes all.
	Prompts int `toml:"prompts" unit:"prompts"`
}

// Log sets what a run writes besides its metrics.
type Log struct {
	// Write every group to rollouts/.
	Rollouts bool `toml:"rollouts"`
	// Write random linear sums of the gradient of every leaf to leaves/, so that "easyrl audit -leaves N" can
	// recompute a part of a step. A leaf, a part of a group, is then a micro-batch by itself. Needs rollouts,
	// device.kind "cpu" and train.backend "easyrl".
	Audit bool `toml:"audit"`
	// Programs that also receive the metrics: "tensorboard" and "csv", both in the run's
	// folder, and "mlflow=http://host:5000".
	To []string `toml:"to"`
}

// Control sets the trainer's address for people and instances.
type Control struct {
	// Listen address, such as "127.0.0.1:7000". If empty, the trainer does not listen.
	Listen string `toml:"listen"`
	// File with the bearer token that control calls need. Required if other machines reach
	// the address, or with inference.token_file.
	TokenFile string `toml:"token_file"`
}

// Default returns the configuration that files and settings override.
func Default() Config {
	return Config{
		Run:        Run{Seed: 1, Steps: 100, Mode: PeriodicAsync},
		Data:       Data{Template: TemplateAuto, Thinking: true, MaxPromptTokens: 1024, Shuffle: true},
		Rollout:    Rollout{PromptsPerStep: 32, GroupSize: 8, Temperature: 1, TopP: 1, MaxTokens: 1024},
		Reward:     reward.Default(),
		Loss:       loss.Default(),
		Train:      Train{Config: optim.Default(), Backend: EasyRL, MicroBatchTokens: 4096, Minibatches: 1},
		SFT:        SFT{Turns: LastTurn, Steps: 100, BatchSize: 32},
		Inference:  Inference{Kind: Embedded, Instances: 1, MaxRunning: 64, MinInstances: 1, WaitSeconds: 120},
		Device:     Device{Kind: CPU, Numerics: npu.FP32.String()},
		Parallel:   parallel.Default(),
		Torch:      torch.Default(),
		Checkpoint: Checkpoint{Every: 50, Keep: 2},
		Eval:       Eval{K: 1, Temperature: 1, TopP: 1},
		Log:        Log{Rollouts: true},
	}
}

// Numerics returns Device.Numerics, or npu.FP32 if it names none.
func (c *Config) Numerics() npu.Numerics {
	n, _ := npu.ParseNumerics(c.Device.Numerics)
	return n
}

// Identity returns the identity of the arithmetic in which the run trains, zero for PyTorch ranks.
func (c *Config) Identity() npu.Identity {
	if c.Train.Backend == PyTorch {
		return npu.Identity{}
	}
	return npu.Identity{Name: c.Device.Numerics, Version: npu.NumericsVersion}
}

// Swaps reports whether Train.Swap has an effect.
func (c *Config) Swaps() bool {
	return c.Train.Swap && c.Device.Kind != CPU && c.Inference.Instances > 0
}

// Waves returns the number of responses per step divided by the number that the instances
// sample at once.
func (c *Config) Waves() float64 {
	instances := max(1, c.Inference.Instances+len(c.Inference.Endpoints))
	return float64(c.Rollout.PromptsPerStep*c.Rollout.GroupSize) / float64(c.Inference.MaxRunning*instances)
}

// Package configs holds the shipped *.toml and their shape as a Go struct; it is
// the only reader of TOML.
//
// A run is what its files say, left to right, then its settings, on top of
// Default. Keys are strict, and every value remembers who set it.
package configs

//go:generate go test . -run TestConfigurationPage -args -write

import (
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/reward"
)

// Config is a whole run. Paths are relative to the folder that the command runs
// in.
type Config struct {
	Run        Run           `toml:"run"`
	Model      Model         `toml:"model"`
	Data       Data          `toml:"data"`
	Rollout    Rollout       `toml:"rollout"`
	Reward     reward.Config `toml:"reward"`
	Loss       loss.Config   `toml:"loss"`
	Train      Train         `toml:"train"`
	SFT        SFT           `toml:"sft"`
	Inference  Inference     `toml:"inference"`
	Device     Device        `toml:"device"`
	Parallel   Parallel      `toml:"parallel"`
	Checkpoint Checkpoint    `toml:"checkpoint"`
	Eval       Eval          `toml:"eval"`
	Log        Log           `toml:"log"`
	Control    Control       `toml:"control"`
}

// The modes of a run: when training starts and what it shares with sampling.
const (
	// PeriodicAsync trains groups as they arrive.
	PeriodicAsync = "periodic-async"
	// Sync waits for the whole batch, then trains.
	Sync = "sync"
	// Colocated lets sampling and training take turns on all the cores.
	Colocated = "colocated"
)

// Run names a run and says how long it is.
type Run struct {
	// Name of the run; by default that of its first file.
	Name string `toml:"name"`
	// Dir is the run's folder; by default runs/<name>.
	Dir string `toml:"dir"`
	// Seed of everything random: data order, sampling, initial weights.
	Seed uint64 `toml:"seed"`
	// Steps are the optimization periods of the run, each on fresh weights.
	Steps int `toml:"steps" unit:"steps"`
	// Mode is when training starts and what it shares with sampling:
	// "periodic-async", "sync" or "colocated".
	Mode string `toml:"mode"`
}

// Model says where the policy comes from: a folder or random weights.
type Model struct {
	// Path of a Hugging Face folder.
	Path string `toml:"path"`
	// Init makes random weights instead.
	Init Init `toml:"init"`
}

// Init describes a randomly initialised model.
type Init struct {
	// Config is the path of a config.json. Its folder holds the tokenizer's files.
	Config string `toml:"config"`
}

// Data says which prompts are trained and evaluated on.
type Data struct {
	// Train are the files of prompts to train on, or patterns of their names.
	Train []string `toml:"train"`
	// Weights are the shares of Train's entries in the prompts; without them
	// each prompt counts once.
	Weights []float64 `toml:"weights"`
	// Eval are the files of prompts to evaluate on, or patterns of their names:
	// each file is a set, reported by its name.
	Eval []string `toml:"eval"`
	// PromptKey is where an object has its prompt, text or chat messages; dots go
	// deeper. Without it the usual layouts are recognised.
	PromptKey string `toml:"prompt_key"`
	// AnswerKey is where an object has what the reward compares with, likewise.
	AnswerKey string `toml:"answer_key"`
	// SourceKey is where an object has the name of its data set, likewise; without
	// it that is "data_source" or else the file's name.
	SourceKey string `toml:"source_key"`
	// Template is what becomes of a prompt: "auto", the model's chat template for prompts that are
	// conversations; "chat", for text too, as the user's turn; or "none".
	Template string `toml:"template"`
	// System is the system turn of a conversation that has none, and stands
	// before a prompt of text.
	System string `toml:"system"`
	// Thinking lets templates that can switch it off begin with a thought.
	Thinking bool `toml:"thinking"`
	// MaxPromptTokens is the longest prompt; longer ones are left out and counted.
	MaxPromptTokens int `toml:"max_prompt_tokens" unit:"tokens"`
	// Shuffle draws a new order of the prompts each epoch.
	Shuffle bool `toml:"shuffle"`
}

// The uses of a model's chat template.
const (
	// TemplateAuto renders conversations and leaves text as it is.
	TemplateAuto = "auto"
	// TemplateChat renders both.
	TemplateChat = "chat"
	// TemplateNone renders nothing and refuses conversations.
	TemplateNone = "none"
)

// Rollout says how a period's responses are sampled.
type Rollout struct {
	// PromptsPerStep is the number of groups in a period.
	PromptsPerStep int `toml:"prompts_per_step" unit:"prompts"`
	// GroupSize is the number of responses to a prompt.
	GroupSize int `toml:"group_size" unit:"responses"`
	// Temperature divides the logits.
	Temperature float64 `toml:"temperature"`
	// TopP keeps the likeliest tokens up to this mass; 1 keeps all.
	TopP float64 `toml:"top_p" unit:"share"`
	// TopK keeps that many of the likeliest tokens; 0 keeps all.
	TopK int `toml:"top_k" unit:"tokens"`
	// MaxTokens is the longest response.
	MaxTokens int `toml:"max_tokens" unit:"tokens"`
	// DynamicSampling is how often a prompt is replaced by another within the step
	// while its responses all have the same reward; 0 never replaces one. Rollouts
	// files list replaced groups after the trained ones, with "replaced": true. The
	// metric reward/sampled_mean averages over both, reward/mean over the trained ones.
	DynamicSampling int `toml:"dynamic_sampling" unit:"times"`
	// Stop ends a response where its text first contains one of these.
	Stop []string `toml:"stop"`
}

// The orders in which a step's gradients are summed.
const (
	// Arrival sums groups as they come.
	Arrival = "arrival"
	// Prompt sums groups in the order of their prompts: the same bits every time.
	Prompt = "prompt"
)

// Train says how weights are updated.
type Train struct {
	optim.Config
	// MicroBatchTokens is the most tokens that one pass computes, unless one
	// group has more.
	MicroBatchTokens int `toml:"micro_batch_tokens" unit:"tokens"`
	// Order of the groups in a step's sum: "arrival" or "prompt".
	Order string `toml:"order"`
	// Minibatches is the number of optimizer steps in a period.
	Minibatches int `toml:"minibatches" unit:"optimizer steps"`
	// Recompute computes activations anew in the backward pass: less memory, more
	// work, the same bits.
	Recompute bool `toml:"recompute"`
}

// SFT is supervised training, of easyrl sft.
type SFT struct {
	// Data are the files of demonstrations, or patterns of their names.
	Data []string `toml:"data"`
	// Eval are files of demonstrations that are held out: their loss is reported
	// by the file's name, as often as eval.every says.
	Eval []string `toml:"eval"`
	// ResponseKey is where an object has its response. Without it the usual layouts
	// are recognised.
	ResponseKey string `toml:"response_key"`
	// Turns of the assistant's that a conversation teaches: "last", or "all", each
	// as a demonstration of its own after the turns before it.
	Turns string `toml:"turns"`
	// Steps are the optimizer steps.
	Steps int `toml:"steps" unit:"steps"`
	// BatchSize is the number of demonstrations in a step.
	BatchSize int `toml:"batch_size" unit:"demonstrations"`
}

// The turns of a conversation that are demonstrations.
const (
	// LastTurn is the one that it ends with.
	LastTurn = "last"
	// AllTurns are all of the assistant's.
	AllTurns = "all"
)

// The kinds of inference instances that are not servers; package remote has the
// others.
const (
	// Embedded instances sample in this process.
	Embedded = "embedded"
)

// Inference says who samples.
type Inference struct {
	// Kind is who samples: "embedded", or what the servers of Endpoints are.
	Kind string `toml:"kind"`
	// Instances is the number of embedded instances: by default 1, or none where
	// servers sample.
	Instances int `toml:"instances" unit:"instances"`
	// Threads of each embedded instance; 0 shares the cores out.
	Threads int `toml:"threads" unit:"threads"`
	// MaxRunning is the number of responses that an instance samples at once.
	MaxRunning int `toml:"max_running" unit:"responses"`
	// Endpoints are the servers' URLs; one of another kind than Kind is written
	// vllm=http://….
	Endpoints []string `toml:"endpoints"`
	// MinInstances must hold the weights: with fewer the run waits, and stops with
	// a checkpoint where it waits too long.
	MinInstances int `toml:"min_instances" unit:"instances"`
	// WaitSeconds is how long a run waits for MinInstances, at its start as in its
	// middle.
	WaitSeconds int `toml:"wait_seconds" unit:"s"`
	// HedgeAfter is after how long without an answer a request is given to a second
	// instance as well, where one has room; the first answer counts. 0 gives none.
	HedgeAfter float64 `toml:"hedge_after" unit:"s"`
	// WeightsDir is a folder that the servers see too, where weights are left for
	// those that read them from files; by default weights in the run's folder.
	WeightsDir string `toml:"weights_dir"`
	// Watch is a file with a server a line, as in Endpoints, or dns:NAME:PORT:
	// what is added to it joins the run, and what goes from it leaves.
	Watch string `toml:"watch"`
	// TokenFile holds the bearer token that the servers need.
	TokenFile string `toml:"token_file"`
}

// The kinds of devices.
const (
	// CPU is the device that is always there.
	CPU = "cpu"
	// CUDA is an NVIDIA GPU.
	CUDA = "cuda"
	// Ascend is a Huawei NPU.
	Ascend = "ascend"
)

// Device says what the trainer computes on.
type Device struct {
	// Kind is what computes: "cpu", "cuda", "ascend", or the path of a kernel
	// library.
	Kind string `toml:"kind"`
	// Threads of the trainer on a CPU; 0 takes the cores that inference leaves,
	// and those of instances while they have nothing to do.
	Threads int `toml:"threads" unit:"threads"`
}

// Parallel is the mesh of ranks; one process needs none.
type Parallel struct {
	// DP is the number of data-parallel replicas.
	DP int `toml:"dp" unit:"ranks"`
	// TP is the number of ranks that share each layer.
	TP int `toml:"tp" unit:"ranks"`
	// PP is the number of pipeline stages.
	PP int `toml:"pp" unit:"ranks"`
}

// Checkpoint says when a run is saved.
type Checkpoint struct {
	// Every so many steps, and at the end; 0 saves at the end alone.
	Every int `toml:"every" unit:"steps"`
	// Keep the newest so many; 0 keeps all.
	Keep int `toml:"keep" unit:"checkpoints"`
}

// Eval says when and how a run is evaluated on data.eval.
type Eval struct {
	// Every so many steps, before the first and after the last; 0 never does.
	Every int `toml:"every" unit:"steps"`
	// K is the number of responses to a prompt.
	K int `toml:"k" unit:"responses"`
	// Temperature of these responses; 0 is greedy.
	Temperature float64 `toml:"temperature"`
	// TopP keeps the likeliest tokens up to this mass; 1 keeps all.
	TopP float64 `toml:"top_p" unit:"share"`
	// TopK keeps that many of the likeliest tokens; 0 keeps all.
	TopK int `toml:"top_k" unit:"tokens"`
	// Prompts is the number of prompts, the first of each file; 0 takes all.
	Prompts int `toml:"prompts" unit:"prompts"`
}

// Log says what a run writes beside its metrics.
type Log struct {
	// Rollouts writes every group to rollouts/.
	Rollouts bool `toml:"rollouts"`
	// To are other programs that get the metrics: "tensorboard" and "csv" in the
	// run's folder, and "mlflow=http://host:5000".
	To []string `toml:"to"`
}

// Control is the trainer's address for people and instances.
type Control struct {
	// Listen address, such as "127.0.0.1:7000"; empty listens nowhere.
	Listen string `toml:"listen"`
	// TokenFile holds the bearer token that control calls need.
	TokenFile string `toml:"token_file"`
}

// Default is a run before its files are read.
func Default() Config {
	return Config{
		Run:        Run{Seed: 1, Steps: 100, Mode: PeriodicAsync},
		Data:       Data{Template: TemplateAuto, Thinking: true, MaxPromptTokens: 1024, Shuffle: true},
		Rollout:    Rollout{PromptsPerStep: 32, GroupSize: 8, Temperature: 1, TopP: 1, MaxTokens: 1024},
		Reward:     reward.Default(),
		Loss:       loss.Default(),
		Train:      Train{Config: optim.Default(), MicroBatchTokens: 4096, Order: Arrival, Minibatches: 1},
		SFT:        SFT{Turns: LastTurn, Steps: 100, BatchSize: 32},
		Inference:  Inference{Kind: Embedded, Instances: 1, MaxRunning: 64, MinInstances: 1, WaitSeconds: 120},
		Device:     Device{Kind: CPU},
		Parallel:   Parallel{DP: 1, TP: 1, PP: 1},
		Checkpoint: Checkpoint{Every: 50, Keep: 2},
		Eval:       Eval{K: 1, Temperature: 1, TopP: 1},
		Log:        Log{Rollouts: true},
	}
}

// Waves are a step's responses over those that the instances sample at once.
func (c *Config) Waves() float64 {
	instances := max(1, c.Inference.Instances+len(c.Inference.Endpoints))
	return float64(c.Rollout.PromptsPerStep*c.Rollout.GroupSize) / float64(c.Inference.MaxRunning*instances)
}

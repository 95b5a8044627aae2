package configs

import (
	"math"
	"net"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/discover"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report/sink"
	"github.com/easyrl/easyrl/reward"
)

// Task is the command that a configuration is checked for.
type Task string

// Tasks.
const (
	// TrainTask is easyrl train.
	TrainTask Task = "train"
	// SFTTask is easyrl sft.
	SFTTask Task = "sft"
	// EvalTask is easyrl eval.
	EvalTask Task = "eval"
	// ScoreTask is easyrl score, which uses only the reward.
	ScoreTask Task = "score"
	// ReplayTask is easyrl replay, which uses the settings that decide an optimizer step.
	ReplayTask Task = "replay"
	// AnyTask is SFTTask if sft.data is set and data.train is not, otherwise TrainTask.
	AnyTask Task = ""
)

// evaluations is the number of evaluations of a run that has data to evaluate on and does not
// set eval.every, besides the one before the first step.
const evaluations = 10

// complete sets the defaults that depend on the task.
func (r *Resolved) complete(task Task) {
	if r.origins["eval.every"].File != "" || r.Eval.Every != 0 {
		return
	}
	steps := 0
	switch {
	case task == TrainTask && len(r.Data.Eval) > 0:
		steps = r.Run.Steps
	case task == SFTTask && len(r.SFT.Eval) > 0:
		steps = r.SFT.Steps
	}
	if steps > 0 {
		r.Eval.Every = max(1, steps/evaluations)
	}
}

// Validate sets the defaults that depend on the task and reports the first invalid values together,
// each as a *Fault with the place that set it. It opens no files.
func (r *Resolved) Validate(task Task) error {
	if task == AnyTask {
		task = r.Task()
	}
	r.complete(task)
	c := &checks{resolved: r}
	if task == ScoreTask {
		c.length(r.Rollout)
		c.reward()
		return join(c.faults)
	}
	if task != ReplayTask && task != EvalTask {
		c.run(r.Run, task)
	}
	if task != ReplayTask {
		c.model(r.Model)
		c.data(task)
	}
	switch task {
	case ReplayTask:
		c.temperature(r.Rollout.Temperature)
		c.length(r.Rollout)
		c.section("loss", r.Loss.Validate())
		c.correction()
	case TrainTask:
		c.rollout(r.Rollout)
		c.reward()
		c.checkMarks()
		c.loss()
		c.inference(r.Inference)
		c.eval(r.Eval)
	case EvalTask:
		c.length(r.Rollout)
		c.reward()
		c.inference(r.Inference)
		c.eval(r.Eval)
	case SFTTask:
		c.oneOf("sft.turns", r.SFT.Turns, LastTurn, AllTurns)
		c.between("sft.steps", r.SFT.Steps, 1, maxSteps)
		c.between("sft.batch_size", r.SFT.BatchSize, 1, maxPrompts)
		c.atLeast("eval.every", r.Eval.Every, 0)
	}
	if task == TrainTask || task == SFTTask {
		c.checkHidden("log.to")
	}
	c.train(r.Train)
	c.machine()
	if task != ReplayTask {
		c.log(r.Log)
		c.control(r.Control, r.Inference.TokenFile)
	}
	return join(c.faults)
}

// Task returns the task that AnyTask selects.
func (r *Resolved) Task() Task {
	if named(r.SFT.Data) && !named(r.Data.Train) {
		return SFTTask
	}
	return TrainTask
}

// Upper limits. Larger values are typing errors, and most would exhaust the memory.
const (
	maxSteps   = 1 << 30
	maxPrompts = 1 << 20
	maxTokens  = 1 << 24
	maxThreads = 1024
	maxWait    = 86_400 // seconds
)

// loss checks the section by itself and against other sections.
func (c *checks) loss() {
	r := c.resolved
	l := &r.Loss
	c.section("loss", l.Validate())
	c.correction()
	c.expect(l.Keep <= max(r.Rollout.GroupSize, 0), "loss.keep", "is %d, expected rollout.group_size = %d at most",
		l.Keep, r.Rollout.GroupSize)
}

// correction checks that the trainer computes the log-probabilities that a correction needs.
func (c *checks) correction() {
	r := c.resolved
	l := &r.Loss
	c.expect(l.Correction == loss.NoCorrection || l.OldPolicy == loss.Behaviour || r.Train.Minibatches == 1,
		"loss.correction",
		"is %q, expected %q with loss.old_policy = %q and train.minibatches > 1", l.Correction,
		loss.NoCorrection, l.OldPolicy)
}

func (c *checks) run(run Run, task Task) {
	c.expect(run.Name != "" && run.Name != "." && run.Name != ".." && !strings.ContainsAny(run.Name, `/\`), "run.name",
		"is %q, expected a name without slashes", run.Name)
	c.expect(run.Dir != "", "run.dir", "is empty, expected a folder")
	c.expect(run.Seed <= math.MaxInt64, "run.seed", "is %d, expected %d at most", run.Seed, int64(math.MaxInt64))
	c.oneOf("run.mode", run.Mode, PeriodicAsync, Sync, Colocated)
	if task == TrainTask {
		c.between("run.steps", run.Steps, 1, maxSteps)
	}
}

func (c *checks) model(m Model) {
	c.expect(m.Path == "" || m.Init.Config == "", "model.path",
		"is %q and model.init.config is also set, expected one of them", m.Path)
	c.expect(m.Path != "" || m.Init.Config != "", "model.path",
		"is not set, expected a Hugging Face model folder, or model.init.config")
}

// named reports whether files is not empty and has no empty name.
func named(files []string) bool { return len(files) > 0 && !slices.Contains(files, "") }

// weights checks data.weights.
func (c *checks) weights(data Data) {
	const key = "data.weights"
	if len(data.Weights) == 0 {
		return
	}
	c.expect(len(data.Weights) == len(data.Train), key, "has %d entries, expected %d, one per entry of data.train",
		len(data.Weights), len(data.Train))
	for _, w := range data.Weights {
		c.expect(w > 0 && !math.IsInf(w, 0), key, "has %v, expected more than 0", w)
	}
}

func (c *checks) data(task Task) {
	data := c.resolved.Data
	if task == TrainTask {
		c.expect(named(data.Train), "data.train", "is not set, expected a file of prompts")
		c.weights(data)
	} else if task == EvalTask {
		c.expect(named(data.Eval), "data.eval", "is not set, expected a file of prompts")
	} else {
		sft := c.resolved.SFT
		c.expect(named(sft.Data), "sft.data", "is not set, expected a file of demonstrations")
		c.expect(!slices.Contains(sft.Eval, ""), "sft.eval", "has an empty entry, expected files")
	}
	c.oneOf("data.template", data.Template, TemplateAuto, TemplateChat, TemplateNone)
	c.between("data.max_prompt_tokens", data.MaxPromptTokens, 1, maxTokens)
	c.expect(!slices.Contains(data.Eval, ""), "data.eval", "has an empty entry, expected files")
}

func (c *checks) rollout(r Rollout) {
	c.between("rollout.prompts_per_step", r.PromptsPerStep, 1, maxPrompts)
	least := 2 // a single response has advantage 0 within its group
	if a := c.resolved.Loss.Advantage; a == loss.RewardAdvantage || a == loss.BatchAdvantage {
		least = 1
	}
	c.between("rollout.group_size", r.GroupSize, least, inference.MaxResponses)
	c.between("rollout.dynamic_sampling", r.DynamicSampling, 0, maxSteps)
	c.temperature(r.Temperature)
	c.expect(r.TopP > 0 && r.TopP <= 1, "rollout.top_p", "is %v, expected more than 0 and at most 1", r.TopP)
	c.atLeast("rollout.top_k", r.TopK, 0)
	c.length(r)
	minibatches := c.resolved.Train.Minibatches // train checks that it is positive
	if minibatches >= 1 && r.PromptsPerStep >= 1 {
		c.expect(r.PromptsPerStep%minibatches == 0, "train.minibatches",
			"is %d, expected a divisor of rollout.prompts_per_step = %d",
			minibatches, r.PromptsPerStep)
	}
}

// length checks the keys that limit responses.
func (c *checks) length(r Rollout) {
	c.between("rollout.max_tokens", r.MaxTokens, 1, maxTokens)
	c.expect(!slices.Contains(r.Stop, ""), "rollout.stop", "has an empty string, which would end every response")
}

// temperature checks the sampling temperature of training.
func (c *checks) temperature(t float64) {
	const key = "rollout.temperature"
	c.expect(t > 0, key, "is %v, expected more than 0: training needs different responses to a prompt", t)
	c.expect(t <= 0 || inference.CheckTemperature(t) == nil, key, "is %v, expected %v to %v", t,
		inference.MinTemperature, inference.MaxTemperature)
}

func (c *checks) train(t Train) {
	c.section("train", t.Config.Validate())
	c.between("train.micro_batch_tokens", t.MicroBatchTokens, 1, maxTokens)
	c.oneOf("train.backend", t.Backend, EasyRL, PyTorch)
	c.atLeast("train.minibatches", t.Minibatches, 1)
	c.expect(!t.Swap || c.resolved.Run.Mode == Colocated, "train.swap",
		"is true, expected false unless run.mode is %q", Colocated)
	c.expect(!t.Swap || t.Backend == EasyRL, "train.swap", "is true, expected false unless train.backend is %q", EasyRL)
}

func (c *checks) inference(i Inference) {
	c.oneOf("inference.kind", i.Kind, append([]string{Embedded}, remote.Names()...)...)
	c.between("inference.threads", i.Threads, 0, maxThreads)
	c.between("inference.max_running", i.MaxRunning, 1, inference.MaxResponses)
	c.between("inference.min_instances", i.MinInstances, 1, maxThreads)
	c.between("inference.wait_seconds", i.WaitSeconds, 1, maxWait)
	joins := c.resolved.Control.Listen != "" || i.Watch != ""
	configured := i.Instances + len(i.Endpoints)
	c.expect(joins || configured <= 0 || i.MinInstances <= configured, "inference.min_instances",
		"is %d, expected %d at most: the run has no other instances and none can join", i.MinInstances, configured)
	if i.Kind == Embedded {
		c.between("inference.instances", i.Instances, 1, maxThreads)
		c.expect(len(i.Endpoints) == 0, "inference.endpoints", "is set, expected none with kind %q", Embedded)
		c.expect(i.Watch == "", "inference.watch", "is set, expected none with kind %q", Embedded)
		return
	}
	c.between("inference.instances", i.Instances, 0, maxThreads)
	if i.Watch != "" {
		err := discover.Check(i.Watch)
		c.expect(err == nil, "inference.watch", "is invalid: %v", err)
	}
	c.expect(len(i.Endpoints) > 0 || joins, "inference.endpoints",
		"is empty, expected server URLs for kind %q, or control.listen or inference.watch so that servers can join",
		i.Kind)
	seen := map[string]bool{} // URLs
	for _, endpoint := range i.Endpoints {
		e, err := remote.ParseEndpoint(endpoint, i.Kind)
		c.expect(err == nil, "inference.endpoints", "has %v", err)
		c.expect(err != nil || !seen[e.URL], "inference.endpoints", "has %q twice", e.URL)
		seen[e.URL] = true
	}
}

// machine checks devices, ranks and checkpoints.
func (c *checks) machine() {
	r := c.resolved
	c.expect(r.Device.Kind == CPU || r.Device.Kind == CUDA || r.Device.Kind == Ascend ||
		strings.ContainsAny(r.Device.Kind, `/\`),
		"device.kind", "is %q, expected %s, or the path of a kernel library", r.Device.Kind,
		quoted([]string{CPU, CUDA, Ascend}))
	c.between("device.threads", r.Device.Threads, 0, maxThreads)
	c.oneOf("device.numerics", r.Device.Numerics, npu.FP32.String(), npu.BF16.String())
	c.expect(r.Train.Backend != PyTorch || r.Device.Numerics != npu.BF16.String(), "device.numerics",
		"is %q, expected %q with train.backend = %q, whose ranks compute in torch.dtype", npu.BF16, npu.FP32, PyTorch)
	c.section("parallel", r.Parallel.Validate())
	c.section("torch", r.Torch.Validate())
	c.atLeast("checkpoint.every", r.Checkpoint.Every, 0)
	c.atLeast("checkpoint.keep", r.Checkpoint.Keep, 0)
}

// log checks that each program appears once, and what log.audit needs.
func (c *checks) log(l Log) {
	seen := map[string]bool{}
	for _, to := range l.To {
		err := sink.Check(to)
		c.expect(err == nil, "log.to", "has %v", err)
		name, _, _ := strings.Cut(to, "=")
		c.expect(!seen[name], "log.to", "has %q twice", name)
		seen[name] = true
	}
	if r := c.resolved; l.Audit {
		c.expect(l.Rollouts, "log.audit", "is true, but log.rollouts is false: an audit needs the groups")
		c.expect(r.Device.Kind == CPU, "log.audit", "is true, expected device.kind %q, not %q", CPU, r.Device.Kind)
		c.expect(r.Train.Backend == EasyRL, "log.audit", "is true, expected train.backend %q, not %q", EasyRL,
			r.Train.Backend)
	}
}

func (c *checks) eval(e Eval) {
	c.atLeast("eval.every", e.Every, 0)
	c.between("eval.k", e.K, 1, inference.MaxResponses)
	c.atLeast("eval.prompts", e.Prompts, 0)
	c.oneOf("eval.marks", e.Marks, "", reward.AnyMarks)
	if err := inference.CheckTemperature(e.Temperature); err != nil {
		c.expect(false, "eval.temperature", "%v", err)
	}
	c.expect(e.TopP > 0 && e.TopP <= 1, "eval.top_p", "is %v, expected more than 0 and at most 1", e.TopP)
	c.atLeast("eval.top_k", e.TopK, 0)
	c.expect(e.Every == 0 || len(c.resolved.Data.Eval) > 0, "eval.every",
		"is %d but data.eval is not set, expected files to evaluate on", e.Every)
}

func (c *checks) control(control Control, fleetToken string) {
	if control.Listen == "" {
		return
	}
	host, _, err := net.SplitHostPort(control.Listen)
	if err != nil {
		c.expect(false, "control.listen", "is %q, expected an address such as \"127.0.0.1:7000\"", control.Listen)
		return
	}
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case control.TokenFile != "":
	case !loopback:
		c.expect(false, "control.token_file",
			"is not set, expected a token file because control.listen = %q is reachable from other machines",
			control.Listen)
	case fleetToken != "":
		c.expect(false, "control.token_file",
			"is not set, expected a token file because inference.token_file is set: a server that someone adds "+
				"receives that token")
	}
}

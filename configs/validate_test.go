package configs

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/remote"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		task     Task
		settings []string
		want     []string // prefixes of the faults, in order
	}{
		{"valid", TrainTask, nil, nil},
		{"sft without data", SFTTask, nil, []string{"sft.data is not set, expected a file of demonstrations"}},
		{"sft", SFTTask, []string{"sft.data=d", "data.train=''", "run.steps=0", "rollout.group_size=0"}, nil},
		{"sft recognized by its data", AnyTask, []string{"sft.data=d", "data.train=''", "sft.batch_size=0"}, []string{
			"-set: sft.batch_size is 0, expected 1 or more"}},
		{"sft files", SFTTask, []string{`sft.data=["d","e"]`, `sft.eval=["x",""]`, "eval.every=-1"}, []string{
			"-set: sft.eval has an empty entry, expected files", "-set: eval.every is -1, expected 0 or more"}},
		{"nothing set", TrainTask, []string{"model.path=", "data.train="}, []string{
			"-set: model.path is not set, expected a Hugging Face model folder, or model.init.config",
			"-set: data.train is not set, expected a file of prompts"}},
		{"run", TrainTask, []string{"run.name=a/b", "run.dir=", "run.steps=0", "run.mode=asink"}, []string{
			`-set: run.name is "a/b", expected a name without slashes`,
			`-set: run.mode is "asink", expected one of "periodic-async", "sync", "colocated"`,
			"-set: run.steps is 0, expected 1 or more"}},
		{"two models", TrainTask, []string{"model.init.config=c"}, []string{
			`model.path is "m" and model.init.config is also set, expected one of them`}},
		{"rollout", TrainTask, []string{"rollout.prompts_per_step=0", "rollout.group_size=1", "rollout.temperature=0",
			"rollout.top_p=0",
			"rollout.top_k=-1", "rollout.max_tokens=0", `rollout.stop=["x",""]`}, []string{
			"-set: rollout.prompts_per_step is 0, expected 1 or more",
			"-set: rollout.group_size is 1, expected 2 or more",
			"-set: rollout.temperature is 0, expected more than 0: training needs different responses to a prompt",
			"-set: rollout.top_p is 0, expected more than 0 and at most 1",
			"-set: rollout.top_k is -1, expected 0 or more",
			"-set: rollout.max_tokens is 0, expected 1 or more",
			"-set: rollout.stop has an empty string, which would end every response"}},
		{"sections with their own checks", TrainTask, []string{"reward.kind=http", "reward.timeout=0", "reward.url=u",
			"reward.words=3", "loss.kl=k4", "loss.epsilon_low=-1", "train.lr=-1", "train.beta2=1"}, []string{
			`-set: reward.words is set, but does not apply to kind "http". It applies to "repetition"`,
			`-set: reward.url has "u", expected a URL such as http://127.0.0.1:9000/score`,
			"-set: reward.timeout is 0, expected more than 0",
			"-set: loss.epsilon_low is -1, expected 0 to 1",
			`-set: loss.kl is "k4", expected "k2", "k3"`,
			"-set: train.lr is -1, expected 0 or more",
			"-set: train.beta2 is 1, expected 0 or more and less than 1"}},
		{"swap", TrainTask, []string{"train.swap=true", "train.backend=torch"}, []string{
			`-set: train.swap is true, expected false unless run.mode is "colocated"`,
			`-set: train.swap is true, expected false unless train.backend is "easyrl"`}},
		{"train", TrainTask, []string{"train.micro_batch_tokens=0", "train.minibatches=5"}, []string{
			"-set: train.minibatches is 5, expected a divisor of rollout.prompts_per_step = 32",
			"-set: train.micro_batch_tokens is 0, expected 1 or more"}},
		{"embedded with endpoints", TrainTask, []string{"inference.endpoints=http://a:1", "inference.instances=0"},
			[]string{
				"-set: inference.instances is 0, expected 1 or more",
				`-set: inference.endpoints is set, expected none with kind "embedded"`}},
		{"servers without endpoints", TrainTask, []string{"inference.kind=vllm"}, []string{
			`inference.endpoints is empty, expected server URLs for kind "vllm", or control.listen or ` +
				`inference.watch so that servers can join`}},
		{"servers that join", TrainTask, []string{"inference.kind=vllm", "control.listen=127.0.0.1:7000"}, nil},
		{"watched servers", TrainTask, []string{"inference.kind=vllm", "inference.watch=servers.txt",
			"inference.min_instances=8"}, nil},
		{"servers of several kinds", TrainTask,
			[]string{"inference.kind=easyrl", `inference.endpoints=["http://a:1/", "vllm=https://b/x?=1"]`}, []string{
				`-set: inference.endpoints has "vllm=https://b/x?=1", expected a URL such as http://127.0.0.1:8000`}},
		{"servers and embedded instances", TrainTask,
			[]string{"inference.kind=easyrl", `inference.endpoints=["http://a:1/", "sglang=https://b"]`,
				"inference.instances=2", "inference.min_instances=4"}, nil},
		{"repeated endpoints", TrainTask, []string{"inference.kind=easyrl",
			`inference.endpoints=["http://a:1/", "vllm=http://a:1", "tgi=http://c"]`}, []string{
			`-set: inference.endpoints has "http://a:1" twice`,
			`-set: inference.endpoints has "tgi=http://c", expected one of ` + quoted(remote.Names()) +
				` before the URL`}},
		{"too few instances", TrainTask, []string{"inference.min_instances=2"}, []string{
			"-set: inference.min_instances is 2, expected 1 at most: " +
				"the run has no other instances and none can join"}},
		{"no wait", TrainTask, []string{"inference.wait_seconds=0"},
			[]string{"-set: inference.wait_seconds is 0, expected 1 or more"}},
		{"wait too long", TrainTask, []string{"inference.wait_seconds=86401"},
			[]string{"-set: inference.wait_seconds is 86401, expected 86400 at most"}},
		{"watched name without port", TrainTask, []string{"inference.kind=vllm", "inference.watch=dns:pool"}, []string{
			`-set: inference.watch is invalid: watch dns:pool: expected dns:NAME:PORT`}},
		{"watched embedded instances", TrainTask, []string{"inference.min_instances=2", "inference.watch=x"}, []string{
			`-set: inference.watch is set, expected none with kind "embedded"`}},
		{"wrong endpoint", TrainTask, []string{"inference.kind=easyrl", "inference.endpoints=localhost:8000"}, []string{
			`-set: inference.endpoints has "localhost:8000", expected a URL such as http://127.0.0.1:8000`}},
		{"log", SFTTask, []string{"sft.data=d", `log.to=["csv","wandb","mlflow=http://a:1","mlflow=http://b:1"]`},
			[]string{
				`-set: log.to has "wandb", expected "tensorboard", "csv" or "mlflow=http://host:5000"`,
				`-set: log.to has "mlflow" twice`}},
		{"machine", TrainTask, []string{"device.kind=gpu", "device.threads=-1", "parallel.dp=0", "checkpoint.keep=-1"},
			[]string{
				`-set: device.kind is "gpu", expected "cpu", "cuda", "ascend", or the path of a kernel library`,
				"-set: device.threads is -1, expected 0 or more",
				"-set: parallel.dp is 0, expected 1 or more",
				"-set: checkpoint.keep is -1, expected 0 or more"}},
		{"numerics", SFTTask, []string{"sft.data=d", "device.numerics=fp16"},
			[]string{`-set: device.numerics is "fp16", expected one of "float32", "bf16"`}},
		{"numerics of PyTorch ranks", TrainTask, []string{"train.backend=torch", "device.numerics=bf16"}, []string{
			`-set: device.numerics is "bf16", expected "float32" with train.backend = "torch", whose ranks compute ` +
				`in torch.dtype`}},
		{"other numerics", EvalTask, []string{"data.eval=d", "device.numerics=bf16"}, nil},
		{"library", TrainTask, []string{"device.kind=./libeasyrl_cuda.so"}, nil},
		{"eval", TrainTask, []string{"eval.every=1", "eval.k=0", "eval.prompts=-1", "eval.temperature=-1"}, []string{
			"-set: eval.k is 0, expected 1 or more", "-set: eval.prompts is -1, expected 0 or more",
			"-set: eval.temperature is -1, expected 0, or 0.0001 to 10000",
			"-set: eval.every is 1 but data.eval is not set, expected files to evaluate on"}},
		{"above the limits", TrainTask, []string{"run.steps=2000000000", "data.max_prompt_tokens=100000000",
			"rollout.prompts_per_step=1000000000",
			"rollout.group_size=100000", "rollout.temperature=1e-30", "rollout.max_tokens=99999999999999",
			"reward.kind=command", "reward.command=c", "reward.concurrency=5000",
			"inference.threads=5000", "inference.max_running=100000000", "inference.instances=5000", "eval.k=100000",
			"eval.temperature=1e-30",
			"train.micro_batch_tokens=99999999999999", "device.threads=5000", "parallel.dp=5000"}, []string{
			"-set: run.steps is 2000000000, expected 1073741824 at most",
			"-set: data.max_prompt_tokens is 100000000, expected 16777216 at most",
			"-set: rollout.prompts_per_step is 1000000000, expected 1048576 at most",
			"-set: rollout.group_size is 100000, expected 65536 at most",
			"-set: rollout.temperature is 1e-30, expected 0.0001 to 10000",
			"-set: rollout.max_tokens is 99999999999999, expected 16777216 at most",
			"-set: reward.concurrency is 5000, expected 0 to 1024",
			"-set: inference.threads is 5000, expected 1024 at most",
			"-set: inference.max_running is 100000000, expected 65536 at most",
			"-set: inference.instances is 5000, expected 1024 at most",
			"-set: eval.k is 100000, expected 65536 at most",
			"-set: eval.temperature is 1e-30, expected 0, or 0.0001 to 10000",
			"-set: train.micro_batch_tokens is 99999999999999, expected 16777216 at most",
			"-set: device.threads is 5000, expected 1024 at most",
			"-set: parallel.dp is 5000, expected 1024 at most"}},
		{"sft above the limits", SFTTask, []string{"sft.data=d", "sft.steps=2000000000", "sft.batch_size=100000000"},
			[]string{
				"-set: sft.steps is 2000000000, expected 1073741824 at most",
				"-set: sft.batch_size is 100000000, expected 1048576 at most"}},
		{"replay checks only what it uses", ReplayTask,
			[]string{"data.train=", "run.steps=0", "rollout.temperature=0", "loss.kl=k4", "train.minibatches=0"},
			[]string{
				"-set: rollout.temperature is 0, expected more than 0: training needs different responses to a prompt",
				`-set: loss.kl is "k4", expected "k2", "k3"`, "-set: train.minibatches is 0, expected 1 or more"}},
		{"score checks only the reward", ScoreTask,
			[]string{"data.train=", "run.steps=0", "train.lr=-1", "reward.kind=bogus", "rollout.max_tokens=0"},
			[]string{
				"-set: rollout.max_tokens is 0, expected 1 or more",
				`-set: reward.kind is "bogus", expected one of "exact", `}},
		{"training on unmarked numbers", TrainTask, []string{"reward.kind=math", "reward.marks=any",
			"reward.sources.a={kind=\"sum\",parts={x={kind=\"gsm8k\",marks=\"any\"}}}"}, []string{
			`-set: reward.marks is "any", expected "" for training: a policy learns to end in numbers`,
			`-set: reward.sources.a.parts.x.marks is "any", expected "" for training`}},
		{"evaluation of unmarked numbers", EvalTask, []string{"reward.kind=math", "reward.marks=any", "data.eval=e"},
			nil},
		{"scoring of unmarked numbers", ScoreTask, []string{"reward.kind=gsm8k", "reward.marks=any"}, nil},
		{"evaluations of a run with unmarked numbers", TrainTask, []string{"reward.kind=math", "eval.marks=any",
			"data.eval=e"}, nil},
		{"unknown marks", TrainTask, []string{"reward.kind=math", "reward.marks=all", "eval.marks=all"}, []string{
			`-set: reward.marks is "all", expected "" or "any"`,
			`-set: eval.marks is "all", expected one of "", "any"`}},
		{"marks of another kind", ScoreTask, []string{"reward.kind=exact", "reward.marks=any"},
			[]string{`-set: reward.marks is set, but does not apply to kind "exact"`}},
		{"marks beside a pattern", ScoreTask, []string{"reward.kind=math", "reward.marks=any",
			"reward.pattern=a(.*)"}, []string{`-set: reward.marks is "any" beside pattern`}},
		{"control", TrainTask, []string{"control.listen=:7000"}, []string{
			`control.token_file is not set, expected a token file because control.listen = ":7000" is reachable ` +
				`from other machines`}},
		{"control address", TrainTask, []string{"control.listen=7000"}, []string{
			`-set: control.listen is "7000", expected an address such as "127.0.0.1:7000"`}},
		{"fleet's token on an open control address", TrainTask,
			[]string{"control.listen=127.0.0.1:7000", "inference.token_file=t"}, []string{
				"control.token_file is not set, expected a token file because inference.token_file is set: a server " +
					"that someone adds receives that token"}},
		{"fleet's token without a control address", TrainTask, []string{"inference.token_file=t"}, nil},
		{"fleet's token and a control token", TrainTask,
			[]string{"control.listen=127.0.0.1:7000", "inference.token_file=t", "control.token_file=t"}, nil},
		{"control with a token", TrainTask, []string{"control.listen=0.0.0.0:7000", "control.token_file=t"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, err := Load(nil, append([]string{"run.name=x", "model.path=m", "data.train=t"}, test.settings...))
			require.NoError(t, err)
			r.origins["model.path"] = Origin{} // not from this test's settings
			if strings.Contains(strings.Join(test.settings, " "), "model.path") {
				r.origins["model.path"] = Origin{File: setOrigin}
			}
			err = r.Validate(test.task)
			if len(test.want) == 0 {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			faults := strings.Split(err.Error(), "\n")
			require.Len(t, faults, len(test.want), err)
			for i, want := range test.want {
				require.True(t, strings.HasPrefix(faults[i], want), "%s\n%s", faults[i], want)
			}
			var fault *Fault
			require.True(t, errors.As(err, &fault))
		})
	}
}

func TestValidateShowsTheLine(t *testing.T) {
	t.Parallel()
	files := write(t, small+"[loss]\n  kl = \"k4\" # estimator\n")
	r, err := Load(files, nil)
	require.NoError(t, err)
	require.Equal(t, files[0]+
		":6: loss.kl is \"k4\", expected \"k2\", \"k3\"\n  6 |   kl = \"k4\" # estimator\n    |   ^^^^^^^^^",
		r.Validate(TrainTask).Error())
}

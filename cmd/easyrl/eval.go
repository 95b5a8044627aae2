package main

import (
	"context"
	"encoding/json"
	"flag"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
	"github.com/easyrl/easyrl/run/evaluate"
)

func evalVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:     "eval",
		Synopsis: "[RUN.toml OVERLAY.toml …] -model DIR -data FILE … [-set section.key=value …]",
		Summary:  "Score a model's responses to held-out prompts: mean@k, pass@k and maj@k.",
		Example: `easyrl eval -model DIR -data test.jsonl -reward math -k 4
			easyrl eval -model DIR -data gsm8k/test.jsonl -data 'math/test*.parquet' -reward math -k 8 -out eval.jsonl
			easyrl eval runs/mine/run.toml -model runs/mine/checkpoints/step-000100 -set eval.k=16 -json`,
		Flags: cli.NewFlags(),
	}
	set := addSettings(v.Flags)
	flags := addEvalFlags(v.Flags)
	out := v.Flags.String("out", "", "`FILE` write each finished prompt with its scored responses as one JSON line; "+
		"an existing file resumes its evaluation")
	asJSON := v.Flags.Bool("json", false, "print one JSON object")
	v.Run = func(ctx context.Context, args []string) error {
		resolved, err := configs.Load(args, slices.Concat(set.Values, rewardKeys(v.Flags)))
		if err != nil {
			return usage.Wrap(err)
		}
		cfg := &resolved.Config
		flags.apply(v.Flags, cfg)
		if cfg.Model.Path == "" && cfg.Model.Init.Config == "" || len(cfg.Data.Eval) == 0 {
			return usage.Errorf("eval: expected -model DIR and -data FILE, or a RUN.toml with model.path and " +
				"data.eval (see easyrl eval -h)")
		}
		if resolved.Origin("data.max_prompt_tokens").File == "" {
			cfg.Data.MaxPromptTokens = 1 << 24 // no limit besides the model's context
		}
		if err := resolved.Validate(configs.EvalTask); err != nil {
			return usage.Wrap(err)
		}
		metrics, sets, err := run.Evaluate(ctx, resolved, *out,
			run.Options{Command: v.Words(args), Out: std.out, Log: std.err})
		if err != nil {
			return err
		}
		if evaluate.NoneRight(metrics, sets, cfg.Eval.K) && resolved.Origin("reward.kind").File == "" &&
			len(cfg.Reward.Sources) == 0 {
			notice.Print(std.err, notice.Warning, "no response is correct according to the default reward %q\nhint: "+
				"select another with -reward, or pass the run.toml of a run", cfg.Reward.Kind)
		}
		if *asJSON {
			return json.NewEncoder(std.out).Encode(metrics)
		}
		return evaluate.WriteTable(std.out, metrics, sets)
	}
	return v
}

// evalFlags holds the values of the flags that set configuration keys: those of -data in data, all others
// in cfg.
type evalFlags struct {
	data cli.List
	cfg  configs.Config
}

// addEvalFlags adds the flags to fs. Parsing fs fills the result.
func addEvalFlags(fs *flag.FlagSet) *evalFlags {
	s := &evalFlags{cfg: configs.Default()}
	c := &s.cfg
	fs.StringVar(&c.Model.Path, "model", "", "`DIR` Hugging Face model folder (sets model.path)")
	fs.Var(&s.data, "data",
		"`FILE` prompts with reference answers, or a glob pattern of such files; may be repeated (sets data.eval)")
	fs.IntVar(&c.Eval.K, "k", c.Eval.K, "`K` responses per prompt (sets eval.k)")
	fs.IntVar(&c.Eval.Prompts, "prompts", 0,
		"`N` evaluate only the first N prompts of each set; 0 takes all (sets eval.prompts)")
	fs.Float64Var(&c.Eval.Temperature, "temperature", c.Eval.Temperature,
		"`T` sampling temperature; 0 is greedy (sets eval.temperature)")
	fs.IntVar(&c.Rollout.MaxTokens, "max-tokens", c.Rollout.MaxTokens,
		"`N` maximum tokens per response (sets rollout.max_tokens)")
	fs.Uint64Var(&c.Run.Seed, "seed", c.Run.Seed, "`S` random seed (sets run.seed)")
	addRewardFlags(fs, c)
	fs.StringVar(&c.Data.PromptKey, "prompt-key", c.Data.PromptKey,
		"`KEY` field with the prompt; by default easyrl recognizes the usual layouts (sets data.prompt_key)")
	fs.StringVar(&c.Data.AnswerKey, "answer-key", c.Data.AnswerKey,
		"`KEY` field with the reference answer (sets data.answer_key)")
	fs.StringVar(&c.Data.Template, "template", c.Data.Template,
		"`USE` when to apply the model's chat template: auto, chat or none (sets data.template)")
	fs.IntVar(&c.Inference.Threads, "threads", 0, "`N` CPU threads; 0 uses all cores (sets inference.threads)")
	return s
}

// addRewardFlags adds the flags for keys of the reward, which store their values in c. The default of
// -reward is the kind in c.
func addRewardFlags(fs *flag.FlagSet, c *configs.Config) {
	fs.StringVar(&c.Reward.Kind, "reward", c.Reward.Kind, "`KIND` reward kind (sets reward.kind)")
	fs.BoolVar(&c.Reward.Think, "think", false,
		"skip one leading <think>…</think> in reward exact (sets reward.think)")
}

// rewardKeys returns the reward flags that are set, in the form of -set. evalFlags.apply does not copy them,
// because Validate must see that they override the files.
func rewardKeys(fs *flag.FlagSet) (settings []string) {
	fs.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "reward":
			settings = append(settings, "reward.kind="+f.Value.String())
		case "think":
			settings = append(settings, "reward.think="+f.Value.String())
		}
	})
	return settings
}

// apply copies the values of the flags that are set, except the reward's, to cfg. They override files and -set.
func (s *evalFlags) apply(fs *flag.FlagSet, cfg *configs.Config) {
	from := &s.cfg
	fs.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "model":
			cfg.Model = from.Model
		case "data":
			cfg.Data.Eval = s.data.Values
		case "k":
			cfg.Eval.K = from.Eval.K
		case "prompts":
			cfg.Eval.Prompts = from.Eval.Prompts
		case "temperature":
			cfg.Eval.Temperature = from.Eval.Temperature
		case "max-tokens":
			cfg.Rollout.MaxTokens = from.Rollout.MaxTokens
		case "seed":
			cfg.Run.Seed = from.Run.Seed
		case "prompt-key":
			cfg.Data.PromptKey = from.Data.PromptKey
		case "answer-key":
			cfg.Data.AnswerKey = from.Data.AnswerKey
		case "template":
			cfg.Data.Template = from.Data.Template
		case "threads":
			cfg.Inference.Threads = from.Inference.Threads
		}
	})
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/rollout"
)

func evalVerb(std streams) verb {
	v := verb{
		name:    "eval",
		summary: "Score a model's sampled answers to held-out prompts: mean@k and pass@k.",
		example: "easyrl eval -model runs/quickstart/grpo/checkpoints/step-000100 -data runs/quickstart/data/test.jsonl -think",
		flags:   newFlags(),
	}
	defaults := configs.Default()
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder")
	file := v.flags.String("data", "", "`FILE` of prompts and answers")
	k := v.flags.Int("k", 1, "`K` responses to a prompt")
	limit := v.flags.Int("prompts", 0, "`N` first prompts of the file; 0 takes all")
	temperature := v.flags.Float64("temperature", 1, "`T` that divides the logits; 0 is greedy")
	maxTokens := v.flags.Int("max-tokens", 1024, "`N` tokens of a response at most")
	seed := v.flags.Uint64("seed", 1, "`S` of the draws")
	kind := v.flags.String("reward", defaults.Reward.Kind, "`KIND` of reward, as reward.kind in a run")
	think := v.flags.Bool("think", false, "let reward exact skip one leading <think>…</think>")
	promptKey := v.flags.String("prompt-key", defaults.Data.PromptKey, "`KEY` of an object's prompt; without it the usual layouts are recognised")
	template := v.flags.String("template", defaults.Data.Template, "`USE` of the model's chat template, as data.template in a run")
	answerKey := v.flags.String("answer-key", defaults.Data.AnswerKey, "`KEY` of its answer")
	threads := v.flags.Int("threads", 0, "`N` threads; 0 takes all cores")
	asJSON := v.flags.Bool("json", false, "print one JSON object")
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" || *file == "" {
			return usagef("eval: expected -model DIR, -data FILE and no other argument (see easyrl eval -h)")
		}
		if *limit < 0 {
			return usagef("eval: -prompts is %d, expected 0 or more", *limit)
		}
		sampling := inference.Sampling{Temperature: float32(*temperature), TopP: 1, MaxTokens: *maxTokens}
		if err := checkRequest(inference.Request{PromptIDs: []int32{0}, N: *k, Sampling: sampling}, *temperature); err != nil {
			return err
		}
		cfg := defaults
		cfg.Model.Path, cfg.Data.Eval, cfg.Data.PromptKey, cfg.Data.AnswerKey = *dir, []string{*file}, *promptKey, *answerKey
		cfg.Data.Template = *template
		cfg.Data.MaxPromptTokens = 1 << 30 // the model's context is the limit
		cfg.Reward.Kind, cfg.Reward.Think, cfg.Rollout.MaxTokens = *kind, *think, min(*maxTokens, 1<<30)
		cfg.Inference.Threads = orElse(*threads, runtime.NumCPU())
		cfg.Run.Seed, cfg.Eval.K, cfg.Eval.Temperature, cfg.Eval.Prompts = *seed, *k, *temperature, *limit
		metrics, err := evaluateFolder(ctx, std, &cfg)
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(std.out).Encode(metrics)
		}
		p := printer{std.out}
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			p.line("%-40s %8.4f", name, metrics[name])
		}
		return nil
	}
	return v
}

// evaluateFolder scores the model of a folder on an engine of its own.
func evaluateFolder(ctx context.Context, std streams, cfg *configs.Config) (map[string]float64, error) {
	warn := func(format string, args ...any) { printer{std.err}.line("easyrl: "+format, args...) }
	f, err := openFolder(cfg.Model.Path)
	if err != nil {
		return nil, err
	}
	sets, err := readSets(cfg.Data.Eval, cfg.Eval.Prompts, func(paths []string) ([][]rollout.Prompt, error) { return f.prompts(paths, cfg, warn) })
	if err != nil {
		return nil, err
	}
	score, end, err := scorer(cfg)
	if err != nil {
		return nil, err
	}
	defer end()
	dev, err := openDevice(configs.CPU, cfg.Inference.Threads)
	if err != nil {
		return nil, err
	}
	defer dev.Close() //nolint:errcheck // nothing is left to do with it
	w, err := f.weights(dev)
	if err != nil {
		return nil, err
	}
	in, err := startInstances(ctx, f, cfg, nil, warn)
	if err != nil {
		return nil, err
	}
	defer in.fleet.Close() //nolint:errcheck // its memory goes with the process
	if err := in.fleet.Publish(ctx, model.NewSnapshot(w, 1)); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	e := &evaluation{sets: sets, k: cfg.Eval.K, seed: cfg.Run.Seed, fleet: in.fleet, score: score, text: f.text,
		sampling: inference.Sampling{Temperature: float32(cfg.Eval.Temperature), TopP: 1, MaxTokens: cfg.Rollout.MaxTokens, StopIDs: f.stops}}
	metrics, _, err := e.run(ctx)
	return metrics, err
}

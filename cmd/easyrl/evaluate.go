package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/evaluate"
	"github.com/easyrl/easyrl/inference"
)

// evalSets reads a configuration's files of held-out prompts, the first
// eval.prompts of each set or, with 0, all.
func (f *folder) evalSets(cfg *configs.Config, warn func(format string, args ...any)) ([]evaluate.Set, error) {
	if len(cfg.Data.Eval) == 0 {
		return nil, nil
	}
	files, err := data.Files(cfg.Data.Eval)
	if err != nil {
		return nil, usageError{err}
	}
	lists, leftOut, err := f.prompts(files, cfg, warn)
	if err != nil {
		return nil, err
	}
	var sets []evaluate.Set
	for _, named := range evaluate.Names(files) {
		set := evaluate.Set{Name: named.Name}
		for _, i := range named.Files {
			set.Prompts = append(set.Prompts, lists[i]...)
			set.LeftOut += leftOut[i]
		}
		if n := cfg.Eval.Prompts; n > 0 {
			set.Prompts = set.Prompts[:min(n, len(set.Prompts))]
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// evalConfig says what an evaluation samples.
func evalConfig(cfg *configs.Config, f *folder) evaluate.Config {
	return evaluate.Config{K: cfg.Eval.K, Seed: cfg.Run.Seed, Sampling: inference.Sampling{
		Temperature: float32(cfg.Eval.Temperature), TopP: float32(cfg.Eval.TopP), TopK: cfg.Eval.TopK,
		MaxTokens: cfg.Rollout.MaxTokens, Stop: cfg.Rollout.Stop, StopIDs: f.stops}}
}

// evalSettings are what the result of an evaluation depends on: what it samples
// with, the weights, the prompts as the model reads them, and how it scores.
func evalSettings(resolved *configs.Resolved, f *folder, weights string, sets []evaluate.Set) (map[string]string, error) {
	settings := resolved.Values("reward")
	for key := range settings {
		how := key[strings.LastIndexByte(key, '.')+1:] // says nothing about the score
		if slices.Contains([]string{"processes", "memory_gib", "requests", "batch", "timeout", "retries"}, how) {
			delete(settings, key)
		}
	}
	for section, keys := range map[string][]string{"eval": {"k", "temperature", "top_p", "top_k"}, "rollout": {"max_tokens", "stop"}, "run": {"seed"}} {
		values := resolved.Values(section)
		for _, key := range keys {
			settings[section+"."+key] = values[section+"."+key]
		}
	}
	settings["record"] = "2" // 2 says of each response whether it is right
	settings["weights"] = weights
	settings["stop tokens"] = fmt.Sprint(f.stops)
	for i := range sets {
		digest := sha256.New()
		if err := json.NewEncoder(digest).Encode(sets[i].Prompts); err != nil {
			return nil, fmt.Errorf("%s: %w", sets[i].Name, err)
		}
		settings["set "+sets[i].Name] = fmt.Sprintf("%d prompts (%.8x)", len(sets[i].Prompts), digest.Sum(nil))
	}
	return settings, nil
}

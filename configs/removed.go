package configs

import (
	"fmt"
	"reflect"
	"strings"
)

// removed is a key that no longer exists.
type removed struct {
	key     string
	old     any    // last default, which files may still set
	instead string // message after the key
}

// removedKeys lists the removed keys. A file may still set them to their last defaults,
// as the run.toml of an older run does.
func removedKeys() []removed {
	const config = "was removed: write a config.json and name it in model.init.config"
	const part = `was removed: use reward.kind = "sum" with `
	list := []removed{
		{"model.init.tokenizer", "", "was removed: put the tokenizer's files beside model.init.config"},
		{"rollout.min_p", 0.0, "was removed: use rollout.top_p"},
		{"rollout.refill", int64(0), "was renamed to rollout.dynamic_sampling"},
		{"reward.trim", false, `was removed: use kind = "regex" with pattern = '(?s)^\s*(.*?)\s*$'`},
		{"reward.flexible", false, `was removed: use kind = "math"`},
		{"reward.format_score", 0.0, part + `a part of kind "gsm8k" and one of kind "regex"`},
		{"reward.start", true, "was removed: the first tag must open the response"},
		{"reward.compare", "text", `was removed: for "math" use kind = "math" with a pattern`},
		{"reward.max_tokens", int64(0), "was removed: the limit is rollout.max_tokens"},
		{"reward.penalty", 0.0, part + `a part of kind "repetition" and its weight`},
		{"reward.processes", int64(4), "was renamed to reward.concurrency"},
		{"reward.requests", int64(8), "was renamed to reward.concurrency"},
		{"reward.retries", int64(2), "was removed: failed calls are retried twice"},
		{"loss.constant", int64(0), "was removed: the constant is rollout.max_tokens"},
		{"loss.correction_low", 0.5, "was removed: it is always 0.5"},
		{"loss.filter", "best-worst", "was removed: loss.keep always keeps the best half and the worst half"},
		{"loss.overlong", int64(0), part + `a part of kind "overlong"`},
		{"train.order", "arrival", "was removed: the order in which groups arrive no longer changes the result"},
		{"train.beta1", 0.9, "was removed: it is always 0.9"},
		{"train.eps", 1e-8, "was removed: it is always 1e-8"},
		{"sft.prompt_key", "", "was removed: use data.prompt_key"},
		{"sft.weights", []any{}, "was removed: write the mixture to one file"},
		{"inference.hedge_after", 0.0, "was removed: unresponsive instances are bypassed automatically"},
		{"log.trace", true, "was removed: every run writes trace.json"},
	}
	for _, size := range []string{"hidden_size", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab_size"} {
		list = append(list, removed{"model.init." + size, int64(0), config})
	}
	return list
}

// checkRemoved reports whether the entry's key was removed. fault is the error of setting it, nil if a file sets it
// to its last default. Keys in reward.parts and reward.sources count as keys of reward.
func checkRemoved(e entry) (gone bool, fault error) {
	key := joinKey(e.path)
	last := e.path[len(e.path)-1]
	for _, r := range removedKeys() {
		inReward := strings.HasPrefix(r.key, "reward.") && e.path[0] == "reward" && r.key == "reward."+last
		if r.key != key && !inReward {
			continue
		}
		if e.origin.File != setOrigin && reflect.DeepEqual(e.value, r.old) {
			return true, nil
		}
		return true, &Fault{e.name, fmt.Sprintf("%s %s", key, r.instead)}
	}
	return false, nil
}

package configs

import (
	"fmt"
	"reflect"
	"strings"
)

// removed is a key that a run file may no longer set.
type removed struct {
	key     string
	old     any    // its last default, which says what the program does anyway
	instead string // the rest of a sentence that begins with the key
}

// removedKeys lists the keys that are gone. The run.toml of an older run names
// them all, so a file may repeat their defaults.
func removedKeys() []removed {
	const config = "is gone: write a config.json and name it in model.init.config"
	const part = `is gone: use reward.kind = "sum" with `
	list := []removed{
		{"model.init.tokenizer", "", "is gone: put the tokenizer's files beside model.init.config"},
		{"rollout.min_p", 0.0, "is gone: use rollout.top_p"},
		{"rollout.refill", int64(0), "is now rollout.dynamic_sampling"},
		{"reward.trim", false, `is gone: use kind = "regex" with pattern = '(?s)^\s*(.*?)\s*$'`},
		{"reward.flexible", false, `is gone: use kind = "math"`},
		{"reward.format_score", 0.0, part + `a part of kind "gsm8k" and one of kind "regex"`},
		{"reward.start", true, "is gone: the first tag must open the response"},
		{"reward.compare", "text", `is gone: for "math" use kind = "math" with a pattern`},
		{"reward.max_tokens", int64(0), "is gone: the limit is rollout.max_tokens"},
		{"reward.penalty", 0.0, part + `a part of kind "repetition" and its weight`},
		{"reward.processes", int64(4), "is now reward.concurrency"},
		{"reward.requests", int64(8), "is now reward.concurrency"},
		{"reward.retries", int64(2), "is gone: a failed call is repeated twice"},
		{"loss.constant", int64(0), "is gone: the constant is the largest number of tokens a response may have"},
		{"loss.correction_low", 0.5, "is gone: it is always 0.5"},
		{"loss.filter", "best-worst", `is gone: loss.keep always keeps the best half and the worst half`},
		{"loss.overlong", int64(0), part + `a part of kind "overlong"`},
		{"train.beta1", 0.9, "is gone: it is always 0.9"},
		{"train.eps", 1e-8, "is gone: it is always 1e-8"},
		{"sft.prompt_key", "", "is gone: use data.prompt_key"},
		{"sft.weights", []any{}, "is gone: write the mixture to one file"},
		{"log.trace", true, "is gone: every run writes trace.json"},
	}
	for _, size := range []string{"hidden_size", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab_size"} {
		list = append(list, removed{"model.init." + size, int64(0), config})
	}
	return list
}

// checkRemoved reports whether a key that is gone has the entry's name, and the
// fault of setting it. Entries of reward.parts and reward.sources count as those of
// reward.
func checkRemoved(e entry) (fault error, gone bool) {
	key := joinKey(e.path)
	last := e.path[len(e.path)-1]
	for _, r := range removedKeys() {
		inReward := strings.HasPrefix(r.key, "reward.") && e.path[0] == "reward" && r.key == "reward."+last
		if r.key != key && !inReward {
			continue
		}
		if e.origin.File != setOrigin && reflect.DeepEqual(e.value, r.old) {
			return nil, true
		}
		return &Fault{e.name, fmt.Sprintf("%s %s", key, r.instead)}, true
	}
	return nil, false
}

package data

import "github.com/easyrl/easyrl/rollout"

// Duplicates is the number of prompts whose text an earlier one has.
func Duplicates(prompts []rollout.Prompt) int {
	seen := make(map[string]struct{}, len(prompts))
	for i := range prompts {
		seen[prompts[i].Text] = struct{}{}
	}
	return len(prompts) - len(seen)
}

// OverLong splits prompts into those of at most maxTokens token ids, in order,
// and the IDs of the others. A maxTokens of 0 keeps all.
func OverLong(prompts []rollout.Prompt, maxTokens int) (kept []rollout.Prompt, dropped []string) {
	if maxTokens <= 0 {
		return prompts, nil
	}
	for i := range prompts {
		if len(prompts[i].IDs) > maxTokens {
			dropped = append(dropped, prompts[i].ID)
		} else {
			kept = append(kept, prompts[i])
		}
	}
	return kept, dropped
}

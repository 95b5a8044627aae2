package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Duplicates returns the number of prompts with the same text and messages as an
// earlier one.
func Duplicates(prompts []rollout.Prompt) int {
	seen := make(map[string]struct{}, len(prompts))
	for i := range prompts {
		seen[contentKey(&prompts[i])] = struct{}{}
	}
	return len(prompts) - len(seen)
}

// contentKey returns a key that is equal for prompts with the same text and messages. The keys
// of different plain texts differ, and so do those of different chats.
func contentKey(p *rollout.Prompt) string {
	if p.Messages == nil {
		return p.Text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q", p.Text)
	for _, m := range p.Messages {
		fmt.Fprintf(&b, "%q%q", m.Role, m.Content)
		for _, k := range slices.Sorted(maps.Keys(m.Extra)) {
			fmt.Fprintf(&b, "%q%q", k, m.Extra[k])
		}
	}
	return b.String()
}

// Sources appends to found the sources of prompts that found lacks, in the order of their
// first prompts.
func Sources(found []string, prompts []rollout.Prompt) []string {
	for i := range prompts {
		if !slices.Contains(found, prompts[i].Source) {
			found = append(found, prompts[i].Source)
		}
	}
	return found
}

// OverLong returns the prompts with at most maxTokens token ids, in order, and the IDs of
// the others. A maxTokens of 0 keeps all.
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

// Having returns the IDs of the prompts that contain a token id.
func Having(prompts []rollout.Prompt, id int32) (names []string) {
	for i := range prompts {
		if slices.Contains(prompts[i].IDs, id) {
			names = append(names, prompts[i].ID)
		}
	}
	return names
}

package torch

import (
	"fmt"
	"slices"
	"strings"
)

// warnFallback warns if the ranks' self-check has rejected faster implementations than the one
// they use. It names each different reason with the first rank that gave it.
func (g *group) warnFallback(warn func(format string, args ...any)) {
	var reasons []string
	var lines []string // reasons with the names of ranks
	for _, r := range g.ranks {
		if reason := oneLine(r.ready.Reason); reason != "" && !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
			lines = append(lines, fmt.Sprintf("%s: %s", r.name(), reason))
		}
	}
	if len(lines) == 0 {
		return
	}
	first := &g.ranks[0].ready
	cost := "prompts are computed once for each of their responses"
	if first.Packed {
		cost = "passes use " + oneLine(first.Attention)
	}
	if first.Slowdown > 0 {
		format := "%s, %.1f times the rows for 4 responses half as long as their prompt"
		if first.Packed {
			format = "%s and take %.1f times as long as the model's own attention on separate sequences"
		}
		cost = fmt.Sprintf(format, cost, first.Slowdown)
	}
	warn("slow PyTorch ranks: %s; rejected by the self-check: %s", cost, strings.Join(lines, "; "))
}

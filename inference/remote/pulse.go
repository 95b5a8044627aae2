package remote

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/easyrl/easyrl/inference/remote/internal/transport"
)

// Pulse implements inference.Pulser with the token counts in GET /metrics. For a server that has no
// metrics, it falls back to Probe.
func (c *client) Pulse(ctx context.Context) (string, error) {
	var page string
	err := c.http.Once(ctx, transport.Call{Method: http.MethodGet, Path: "/metrics"}, &page)
	var refused *transport.StatusError
	if errors.As(err, &refused) || errors.Is(err, transport.ErrBody) {
		return "", c.Probe(ctx)
	}
	return pulse(page), err
}

// pulse returns the lines of a page of metrics that change with each token, or with each few
// tokens, of any request.
func pulse(page string) string {
	var found strings.Builder
	lines := bufio.NewScanner(strings.NewReader(page))
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		_, name, _ = strings.Cut(name, ":") // cut off vllm: or sglang:
		switch strings.TrimSuffix(name, "_total") {
		case "prompt_tokens", "generation_tokens", "num_used_tokens", "token_usage", "kv_cache_usage_perc",
			"gpu_cache_usage_perc", "gen_throughput":
			found.WriteString(lines.Text() + "\n")
		}
	}
	return found.String()
}

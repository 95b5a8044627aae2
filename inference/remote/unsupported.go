package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/inference/remote/internal/transport"
)

// unsupported is a kind of server that users configure by mistake.
type unsupported struct {
	name string
	mark mark
}

// unsupportedServers lists servers that this package recognizes but does not support. The last entry
// matches any server of OpenAI's API, including supported ones.
func unsupportedServers() []unsupported {
	return []unsupported{
		{"llama.cpp, which accepts no weights", mark{"/props", "total_slots"}},
		{"Ollama", mark{"/api/version", "version"}},
		{"LM Studio", mark{"/api/v0/models", "data"}},
		{"Text Generation Inference", mark{"/info", "model_id"}},
		{"Triton Inference Server", mark{"/v2", "extensions"}},
		{"the control address of an easyrl trainer, not a server", mark{"/status", "step"}},
		{"a server of OpenAI's API of another kind", mark{"/v1/models", "data"}},
	}
}

// unknown returns the error about a server of no supported kind. It names the server if that is one of
// unsupportedServers.
func (c *client) unknown(ctx context.Context) error {
	expected := join(titles())
	for _, s := range unsupportedServers() {
		if answers, _ := c.answers(ctx, s.mark); answers {
			return fmt.Errorf("instance %s: not a known server: it is %s, expected %s", c.url, s.name, expected)
		}
	}
	return fmt.Errorf("instance %s: not a known server, expected %s", c.url, expected)
}

// confirm returns an error if a mark shows that the server is of another kind than the configuration
// names. A server without marks, such as one behind a proxy, is accepted.
func (c *client) confirm(ctx context.Context) error {
	for _, m := range marks() {
		answers, reached := c.answers(ctx, m.mark)
		switch {
		case !reached || answers && m.kind.Name == c.kind.Name:
			return nil // if it cannot be reached, Kind.open reports that
		case !answers:
			continue
		}
		return fmt.Errorf("instance %s: it is %s, but its kind is given as %q; "+
			"name it %q in inference.kind, or before its URL as in %s=%s",
			c.url, m.kind.Title, c.kind.Name, m.kind.Name, m.kind.Name, c.url)
	}
	for _, s := range unsupportedServers()[:len(unsupportedServers())-1] {
		if answers, _ := c.answers(ctx, s.mark); answers {
			return fmt.Errorf("instance %s: it is %s, expected %s", c.url, s.name, c.kind.Title)
		}
	}
	return nil
}

// answers reports whether the server has a mark, and whether it could be reached.
func (c *client) answers(ctx context.Context, m mark) (ok, reached bool) {
	var body map[string]any
	err := c.http.Get(ctx, m.path, &body)
	var refused *transport.StatusError
	reached = err == nil || errors.Is(err, transport.ErrBody) || errors.As(err, &refused) && refused.Status < 500
	return err == nil && body[m.field] != nil, reached
}

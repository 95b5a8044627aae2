package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/completions"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/rollout"
)

// llama is an instance of llama.cpp's server, for evaluation: it accepts no weights, and
// its log-probabilities are those of the raw logits.
type llama struct {
	*client
}

// LlamaCpp is the name of the kind of llama.cpp's server.
const LlamaCpp = "llamacpp"

func llamaKind() Kind {
	return Kind{Name: LlamaCpp, Title: "llama.cpp", marks: []mark{{"/props", "total_slots"}}, open: newLlama}
}

func newLlama(ctx context.Context, c *client) (Server, error) {
	var props struct {
		Slots    int `json:"total_slots"`
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := c.http.Get(ctx, "/props", &props); err != nil {
		return nil, err
	}
	c.context = props.Settings.Context
	if c.capacity == 0 {
		c.capacity = props.Slots
	}
	return &llama{c}, nil
}

// Publish always fails: llama.cpp cannot load weights.
func (l *llama) Publish(context.Context, inference.Weights) (string, error) {
	return "", fmt.Errorf("instance %s: llama.cpp cannot load weights; it can evaluate but not train", l.url)
}

// Generate samples the responses concurrently, one call each.
func (l *llama) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	limit, err := l.limit(&req)
	switch {
	case err != nil:
	case req.PromptLogprobs || req.TopLogprobs > 0:
		err = fmt.Errorf("%w: llama.cpp reports log-probabilities of sampled tokens only", inference.ErrInvalid)
	case req.Version != 0:
		err = fmt.Errorf("request is for version %d, but llama.cpp accepts no weights: %w", req.Version, inference.ErrStale)
	}
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", l.url, err)
	}
	out := make([]inference.Completion, req.N)
	err = together(ctx, req.N, max(1, l.capacity), func(ctx context.Context, i int) (err error) {
		if out[i], err = l.sample(ctx, &req, i, limit); err == nil && req.Ended != nil {
			req.Ended(i, out[i])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", l.url, err)
	}
	return out, nil
}

type llamaAnswer struct {
	Content       string `json:"content"`
	StopType      string `json:"stop_type"`
	StoppingWord  string `json:"stopping_word"`
	Truncated     bool   `json:"truncated"`
	Probabilities []struct {
		ID      int32    `json:"id"`
		Logprob *float32 `json:"logprob"`
	} `json:"completion_probabilities"`
}

func (l *llama) sample(ctx context.Context, req *inference.Request, index, limit int) (inference.Completion, error) {
	s := &req.Sampling
	in := map[string]any{
		"prompt": req.PromptIDs, "n_predict": limit, "seed": completions.Seed31(req.Seed, req.FirstIndex+index), "temperature": s.Temperature,
		"top_k": s.TopK, "top_p": s.TopP, "min_p": s.MinP, "typical_p": 1, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
		"samplers": []string{"top_k", "top_p", "min_p", "temperature"}, "stop": append([]string{}, s.Stop...),
		"n_probs": 1, "return_tokens": true, "cache_prompt": false, "ignore_eos": len(s.StopIDs) == 0,
	}
	body, err := json.Marshal(in)
	if err != nil {
		return inference.Completion{}, err
	}
	var a llamaAnswer
	if err := l.http.Do(ctx, transport.Call{Method: http.MethodPost, Path: "/completion", Body: body, Limit: completions.BodyLimit(req, limit), Long: true}, &a); err != nil {
		return inference.Completion{}, err
	}
	c := inference.Completion{Text: a.Content + a.StoppingWord}
	switch a.StopType {
	case "eos", "word":
		c.Finish = rollout.Stop
	case "limit":
		c.Finish = rollout.Length
	default:
		return c, fmt.Errorf("POST /completion: stop type %q, expected eos, word or limit", a.StopType)
	}
	if a.Truncated {
		return c, fmt.Errorf("POST /completion: the prompt was truncated: %w", inference.ErrInvalid)
	}
	for i, p := range a.Probabilities {
		if p.Logprob == nil {
			return c, fmt.Errorf("POST /completion: token %d has log-probability null", i)
		}
		c.IDs, c.Logprobs = append(c.IDs, p.ID), append(c.Logprobs, max(*p.Logprob, completions.NoLogprob+1)) // raw logits may all but exclude the token
		if slices.Contains(s.StopIDs, p.ID) && i < len(a.Probabilities)-1 {
			c.Finish = rollout.Stop
			c.Text, err = l.detokenize(ctx, c.IDs)
			break
		}
	}
	if err == nil {
		err = completions.Check(&c, limit)
	}
	if err != nil {
		return c, fmt.Errorf("POST /completion: %w", err)
	}
	return c, nil
}

// detokenize returns the text of a response cut at one of the caller's stop tokens.
// llama.cpp itself stops only at the model's own.
func (l *llama) detokenize(ctx context.Context, ids []int32) (string, error) {
	var out struct {
		Content string `json:"content"`
	}
	err := l.http.Post(ctx, "/detokenize", map[string]any{"tokens": ids}, &out)
	return out.Content, err
}

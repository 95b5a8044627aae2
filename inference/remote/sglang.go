package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// sglang is an instance of SGLang's server.
type sglang struct {
	*client
	held *labelled
	info string // path that reports the weights' version; empty if none does
	// seeded means that the server honours seeds. It then gives the same draws to all
	// responses without a seed.
	seeded bool
}

// SGLang is the name of the kind of SGLang's server.
const SGLang = "sglang"

func sglangKind() Kind {
	return Kind{Name: SGLang, Title: "SGLang",
		marks: []mark{{"/model_info", "model_path"}, {"/get_model_info", "model_path"}}, open: newSGLang,
		remedy: "Try another version of SGLang"}
}

func newSGLang(ctx context.Context, c *client) (Server, error) {
	if err := c.readModel(ctx); err != nil {
		return nil, err
	}
	s := &sglang{client: c, held: newLabelled(c)}
	for _, path := range []string{"/model_info", "/get_model_info", "/get_weight_version"} {
		_, err := s.version(ctx, path)
		if err == nil {
			s.info = path
			break
		}
		if !transport.NoRoute(err) && !errors.Is(err, transport.ErrBody) {
			return nil, err
		}
	}
	return s, s.readSettings(ctx)
}

// readSettings reads how the server was started.
func (s *sglang) readSettings(ctx context.Context) error {
	var server struct {
		Deterministic bool `json:"enable_deterministic_inference"`
		Running       int  `json:"max_running_requests"` // null if not set
		Replicas      []struct {
			Running int `json:"effective_max_running_requests_per_dp"`
		} `json:"internal_states"`
	}
	for _, path := range []string{"/server_info", "/get_server_info"} {
		err := s.http.Do(ctx, transport.Call{Method: http.MethodGet, Path: path, Limit: 16 << 20}, &server)
		if err == nil {
			break
		}
		if !transport.NoRoute(err) {
			return err
		}
	}
	s.seeded = server.Deterministic
	if s.capacity > 0 {
		return nil
	}
	for _, r := range server.Replicas {
		s.capacity += r.Running
	}
	if s.capacity == 0 {
		s.capacity = server.Running
	}
	return nil
}

// version returns the label that the server reports at path.
func (s *sglang) version(ctx context.Context, path string) (string, error) {
	var out struct {
		Version json.RawMessage `json:"weight_version"`
	}
	if err := s.http.Get(ctx, path, &out); err != nil {
		return "", err
	}
	if out.Version == nil {
		return "", fmt.Errorf("GET %s: %w: no weight_version", path, transport.ErrBody)
	}
	return transport.Text(out.Version), nil
}

// verify compares the server's label with want, if the server has a path that reports it.
func (s *sglang) verify(ctx context.Context, want string) error {
	if s.info == "" {
		return nil
	}
	got, err := s.version(ctx, s.info)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("GET %s: server has weights %.60q, expected %s: %w", s.info, got, want, inference.ErrStale)
	}
	return nil
}

// Publish makes the server read w from the store and verifies it.
func (s *sglang) Publish(ctx context.Context, w inference.Weights) (string, error) {
	if s.info == "" && s.cfg.Canary == nil {
		return "", fmt.Errorf("instance %s: this SGLang reports no weight_version. Use a newer version or a canary",
			s.url)
	}
	return s.held.publish(ctx, w, labelledCalls{push: s.push, held: s.verify, sampler: s.sampler})
}

// push loads the weights. The server aborts running requests, starts none meanwhile and
// empties its prefix cache before it answers. Both status and body must report success.
func (s *sglang) push(ctx context.Context, folder, label string) error {
	const path = "/update_weights_from_disk"
	in := map[string]any{"model_path": folder, "weight_version": label, "abort_all_requests": true, "flush_cache": true}
	var out struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	if err := s.http.Post(ctx, path, in, &out); err != nil {
		return err
	}
	if !out.Success {
		return fmt.Errorf("POST %s: update failed: %.200q", path, out.Message)
	}
	return s.verify(ctx, label)
}

// Generate samples req. Each response carries its label.
func (s *sglang) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	return s.held.generate(ctx, req, s.sampler, func(context.Context, string) error { return nil })
}

type sglangAnswer struct {
	Text string     `json:"text"`
	Meta sglangMeta `json:"meta_info"`
}

type sglangMeta struct {
	Finish struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"finish_reason"`
	PromptTokens *int            `json:"prompt_tokens"`
	Version      json.RawMessage `json:"weight_version"`
	Versions     []struct {
		Version json.RawMessage `json:"version"`
	} `json:"weight_versions"`
	Output []sglangToken   `json:"output_token_logprobs"`
	Input  []sglangToken   `json:"input_token_logprobs"`
	Top    [][]sglangToken `json:"output_top_logprobs"`
}

// sglangToken is [logprob, id, text]. The log-probability of a prompt's first token is
// null.
type sglangToken struct {
	logprob *float32
	id      int32
}

// UnmarshalJSON reads the first two entries.
func (t *sglangToken) UnmarshalJSON(data []byte) error {
	var entries []json.RawMessage
	if err := json.Unmarshal(data, &entries); err != nil {
		return err
	}
	if len(entries) < 2 {
		return fmt.Errorf("token has %d entries, expected [logprob, id, text]", len(entries))
	}
	if string(entries[1]) == "null" {
		return errors.New("token has no id, expected [logprob, id, text]")
	}
	return errors.Join(json.Unmarshal(entries[0], &t.logprob), json.Unmarshal(entries[1], &t.id))
}

// request returns the body of POST /generate. If seeds count, each response is a prompt
// with its own seed, because responses that share a seed would have the same draws.
func (s *sglang) request(req *inference.Request, limit int) map[string]any {
	p := &req.Sampling
	topK := p.TopK
	if topK == 0 {
		topK = -1
	}
	params := map[string]any{
		"n": req.N, "max_new_tokens": limit, "temperature": p.Temperature, "top_p": p.TopP, "top_k": topK,
		"min_p":              p.MinP,
		"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "no_stop_trim": true,
		"stop": append([]string{}, p.Stop...), "stop_token_ids": append([]int32{}, p.StopIDs...),
		"ignore_eos": len(p.StopIDs) == 0, // ignore_eos also disables stop_token_ids
	}
	in := map[string]any{
		"input_ids": req.PromptIDs, "sampling_params": params,
		"return_logprob": true, "top_logprobs_num": req.TopLogprobs, "logprob_start_len": -1,
	}
	if req.PromptLogprobs {
		in["logprob_start_len"] = 0
	}
	if s.seeded {
		prompts, each := make([][]int32, req.N), make([]map[string]any, req.N)
		for i := range each {
			prompts[i], each[i] = req.PromptIDs, maps.Clone(params)
			each[i]["n"], each[i]["sampling_seed"] = 1, seed31(req.Seed, req.FirstIndex+i)
		}
		in["input_ids"], in["sampling_params"] = prompts, each
	}
	return in
}

// sampler returns a Sampler that posts to /generate.
func (s *sglang) sampler(want string) publish.Sampler {
	return func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error) {
		body, err := json.Marshal(s.request(&req, limit))
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		k := transport.Call{Method: http.MethodPost, Path: "/generate", Body: body,
			Limit: bodyLimit(&req, limit), Long: true}
		if err := s.http.Once(ctx, k, &raw); err != nil {
			return nil, err
		}
		out, unlabelled, err := decodeSGLang(raw, &req, limit, want)
		if err == nil && unlabelled && want != "" {
			err = s.verify(ctx, want)
		}
		if err != nil {
			return nil, fmt.Errorf("POST /generate: %w", err)
		}
		return out, nil
	}
}

// decodeSGLang decodes one object, or a list if req asks for several responses.
// unlabelled reports whether a response lacks the label of its weights.
func decodeSGLang(raw json.RawMessage, req *inference.Request, limit int, want string) (
	out []inference.Completion, unlabelled bool, err error) {
	var answers []sglangAnswer
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		err = json.Unmarshal(raw, &answers)
	} else {
		answers = make([]sglangAnswer, 1)
		err = json.Unmarshal(raw, &answers[0])
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", transport.ErrBody, err)
	}
	if len(answers) != req.N {
		return nil, false, fmt.Errorf("%d responses, expected %d", len(answers), req.N)
	}
	out = make([]inference.Completion, req.N)
	for i := range answers {
		a := &answers[i]
		if err = a.Meta.sameWeights(want); err == nil {
			out[i], err = a.decode(req)
		}
		if err == nil {
			err = checkCompletion(&out[i], limit)
		}
		if err != nil {
			return nil, false, fmt.Errorf("response %d: %w", i, err)
		}
		unlabelled = unlabelled || a.Meta.Version == nil
	}
	return out, unlabelled, nil
}

// sameWeights returns an error if any part of the response has a label other than want.
func (m *sglangMeta) sameWeights(want string) error {
	if want == "" {
		return nil
	}
	labels := []json.RawMessage{m.Version}
	for _, v := range m.Versions {
		labels = append(labels, v.Version)
	}
	for _, raw := range labels {
		if raw != nil && transport.Text(raw) != want {
			return fmt.Errorf("weights %.60q, expected %s: %w", transport.Text(raw), want, inference.ErrStale)
		}
	}
	return nil
}

func (a *sglangAnswer) decode(req *inference.Request) (inference.Completion, error) {
	m := &a.Meta
	c := inference.Completion{Text: a.Text}
	var err error
	if c.Finish, err = parseFinish(m.Finish.Type); err != nil {
		return c, err
	}
	if m.PromptTokens != nil && *m.PromptTokens != len(req.PromptIDs) {
		return c, fmt.Errorf("the server's prompt has %d tokens, expected %d", *m.PromptTokens, len(req.PromptIDs))
	}
	if c.Finish == finishAbort && strings.HasPrefix(m.Finish.Message, "Abort before prefill") {
		return inference.Completion{Finish: finishAbort}, nil // its token fields are meaningless
	}
	if c.IDs, c.Logprobs, err = sglangTokens(m.Output); err != nil {
		return c, err
	}
	if req.TopLogprobs > 0 {
		if len(m.Top) != len(c.IDs) {
			return c, fmt.Errorf("%d top log-probabilities for %d tokens", len(m.Top), len(c.IDs))
		}
		for _, at := range m.Top {
			ids, logprobs, err := sglangTokens(at)
			if err != nil {
				return c, fmt.Errorf("top: %w", err)
			}
			all := make([]inference.TokenLogprob, len(ids))
			for i := range ids {
				all[i] = inference.TokenLogprob{ID: ids[i], Logprob: logprobs[i]}
			}
			c.Top = append(c.Top, likeliest(all, req.TopLogprobs))
		}
	}
	if req.PromptLogprobs {
		if len(m.Input) != len(req.PromptIDs) {
			return c, fmt.Errorf("%d prompt log-probabilities, expected %d", len(m.Input), len(req.PromptIDs))
		}
		m.Input[0].logprob = new(float32)
		ids, logprobs, err := sglangTokens(m.Input)
		for i := range ids {
			if ids[i] != req.PromptIDs[i] {
				return c, fmt.Errorf("prompt token %d is %d, expected %d", i, ids[i], req.PromptIDs[i])
			}
		}
		c.PromptLogprobs = logprobs
		return c, errors.Join(err, checkLogprobs("prompt token", logprobs))
	}
	return c, nil
}

func sglangTokens(tokens []sglangToken) (ids []int32, logprobs []float32, err error) {
	ids, logprobs = make([]int32, len(tokens)), make([]float32, len(tokens))
	for i, t := range tokens {
		if t.logprob == nil {
			return nil, nil, fmt.Errorf("token %d has log-probability null", i)
		}
		ids[i], logprobs[i] = t.id, *t.logprob
	}
	return ids, logprobs, nil
}

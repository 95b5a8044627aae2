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
	labelled  *labelled
	labelPath string // path of a GET that reports the label of the weights; empty if there is none
	// seeded means that the server uses seeds. It then makes the same draws for all responses of a
	// request without seeds.
	seeded bool
}

// SGLang is the name of the kind of SGLang's server.
const SGLang = "sglang"

// sglangKind returns the kind of SGLang's server.
func sglangKind() Kind {
	return Kind{Name: SGLang, Title: "SGLang",
		marks: []mark{{"/model_info", "model_path"}, {"/get_model_info", "model_path"}}, open: newSGLang,
		remedy: "Try another version of SGLang"}
}

// newSGLang connects to SGLang's server; see Kind.open.
func newSGLang(ctx context.Context, c *client) (Server, error) {
	if err := c.readModel(ctx); err != nil {
		return nil, err
	}
	s := &sglang{client: c, labelled: newLabelled(c)}
	for _, path := range []string{"/model_info", "/get_model_info", "/get_weight_version"} {
		_, err := s.readLabel(ctx, path)
		if err == nil {
			s.labelPath = path
			break
		}
		if !transport.NoRoute(err) && !errors.Is(err, transport.ErrBody) {
			return nil, err
		}
	}
	return s, s.readSettings(ctx)
}

// readSettings reads from the server how it was started. Servers without these paths keep the defaults.
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

// readLabel returns the label that the server reports at path.
func (s *sglang) readLabel(ctx context.Context, path string) (string, error) {
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

// verify returns an error unless the server reports the label want. It returns nil if the server has
// no path that reports the label. Errors about another label wrap inference.ErrStale.
func (s *sglang) verify(ctx context.Context, want string) error {
	if s.labelPath == "" {
		return nil
	}
	got, err := s.readLabel(ctx, s.labelPath)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("GET %s: server has weights %.60q, expected %s: %w", s.labelPath, got, want,
			inference.ErrStale)
	}
	return nil
}

// Publish makes the server read w from the store and verifies it.
func (s *sglang) Publish(ctx context.Context, w inference.Weights) (string, error) {
	if s.labelPath == "" && s.cfg.Canary == nil {
		return "", fmt.Errorf("instance %s: this SGLang reports no weight_version. Use a newer version or a canary",
			s.url)
	}
	return s.labelled.publish(ctx, w, labelledCalls{push: s.push, verify: s.verify, sampler: s.sampler})
}

// push makes the server load weights. Before it answers, the server aborts running requests, starts no
// others and empties its prefix cache. Both status and body must report success.
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

// Generate implements inference.Instance. The sampler checks the label of each response.
func (s *sglang) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	return s.labelled.generate(ctx, req, s.sampler, func(context.Context, string) error { return nil })
}

// sglangAnswer is one response in the answer to POST /generate.
type sglangAnswer struct {
	Text string     `json:"text"`
	Meta sglangMeta `json:"meta_info"`
}

// sglangMeta describes a response and its tokens.
type sglangMeta struct {
	Finish struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"finish_reason"`
	PromptTokens *int            `json:"prompt_tokens"`
	Version      json.RawMessage `json:"weight_version"` // label of the weights; nil if the server does not report it
	Versions     []struct {      // labels of parts of the response
		Version json.RawMessage `json:"version"`
	} `json:"weight_versions"`
	Output []sglangToken   `json:"output_token_logprobs"`
	Input  []sglangToken   `json:"input_token_logprobs"`
	Top    [][]sglangToken `json:"output_top_logprobs"`
}

// sglangToken is [logprob, id, text] in JSON. The log-probability of a prompt's first token is null.
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

// request returns the body of POST /generate. If the server uses seeds, each response is requested as
// a prompt of its own with its own seed, because responses that share a seed would have the same
// draws.
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
		prompts := make([][]int32, req.N)
		paramsOf := make([]map[string]any, req.N)
		for i := range prompts {
			prompts[i] = req.PromptIDs
			paramsOf[i] = maps.Clone(params)
			paramsOf[i]["n"] = 1
			paramsOf[i]["sampling_seed"] = seed31(req.Seed, req.FirstIndex+i)
		}
		in["input_ids"] = prompts
		in["sampling_params"] = paramsOf
	}
	return in
}

// sampler returns a Sampler that posts to /generate and returns an error unless the responses come from
// the weights with label want. An empty want accepts any.
func (s *sglang) sampler(want string) publish.Sampler {
	return func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error) {
		body, err := json.Marshal(s.request(&req, limit))
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		call := transport.Call{Method: http.MethodPost, Path: "/generate", Body: body,
			Limit: bodyLimit(&req, limit), Long: true}
		if err := s.http.Once(ctx, call, &raw); err != nil {
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

// decodeSGLang checks and decodes an answer, which is one response or a list of responses. unlabelled
// reports whether a response lacks the label of its weights; other responses must have the label want.
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

// decode converts a response to req.
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
		for _, alternatives := range m.Top {
			ids, logprobs, err := sglangTokens(alternatives)
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
		m.Input[0].logprob = new(float32) // it is null; a Completion has 0
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

// sglangTokens returns the IDs and log-probabilities of tokens.
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

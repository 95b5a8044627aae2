package remote

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/rollout"
)

// finishAbort is the finish reason of a response that the server aborted. Its tokens are valid
// and it may be continued.
const finishAbort rollout.Finish = "abort"

// noLogprob is the log-probability that vLLM writes for tokens of probability 0.
const noLogprob = -9999

// completionRequest is the body of POST /v1/completions. It sets every sampling parameter, so that a
// server does not take defaults from the model's generation_config.json.
type completionRequest struct {
	Model             string   `json:"model,omitempty"`
	Prompt            []int32  `json:"prompt"`
	N                 int      `json:"n"`
	Seed              uint64   `json:"seed"`
	MaxTokens         int      `json:"max_tokens"`
	Temperature       float32  `json:"temperature"`
	TopP              float32  `json:"top_p"`
	TopK              int      `json:"top_k"` // -1 keeps all
	MinP              float32  `json:"min_p"`
	RepetitionPenalty float32  `json:"repetition_penalty"`
	PresencePenalty   float32  `json:"presence_penalty"`
	FrequencyPenalty  float32  `json:"frequency_penalty"`
	Stop              []string `json:"stop,omitempty"`
	StopTokenIDs      []int32  `json:"stop_token_ids,omitempty"`
	IgnoreEOS         bool     `json:"ignore_eos"` // only StopTokenIDs end a response
	IncludeStop       bool     `json:"include_stop_str_in_output"`
	Logprobs          int      `json:"logprobs"` // number of alternatives; 0 reports only the sampled token
	PromptLogprobs    *int     `json:"prompt_logprobs,omitempty"`
	ReturnTokenIDs    bool     `json:"return_token_ids"`
	TokensAsIDs       bool     `json:"return_tokens_as_token_ids"` // for servers without return_token_ids
	CacheSalt         string   `json:"cache_salt,omitempty"`       // vLLM shares cached prompts of one salt only

	// Fields of easyrl serve.
	WeightVersion *int64 `json:"weight_version,omitempty"` // required version of the weights; nil accepts any
	SampleIndex   int    `json:"sample_index,omitempty"`   // index of the first response
	StreamChoices bool   `json:"stream_choices,omitempty"` // send each choice as soon as it is complete
}

// newCompletionRequest converts req, with up to limit tokens per response, without the fields that
// depend on the kind of server.
func newCompletionRequest(model string, req *inference.Request, limit int) completionRequest {
	s := &req.Sampling
	body := completionRequest{
		Model: model, Prompt: req.PromptIDs, N: req.N, Seed: req.Seed, MaxTokens: limit,
		Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, MinP: s.MinP, RepetitionPenalty: 1,
		Stop: s.Stop, StopTokenIDs: s.StopIDs, IgnoreEOS: true, IncludeStop: true,
		Logprobs: req.TopLogprobs, ReturnTokenIDs: true, TokensAsIDs: true,
	}
	if body.TopK == 0 {
		body.TopK = -1
	}
	if req.PromptLogprobs {
		body.PromptLogprobs = new(int)
	}
	return body
}

// bodyLimit returns the maximum size in bytes of the answer to req from any kind of server, with up
// to limit tokens per response. It allows 512 bytes per token and alternative, for the text, the
// log-probability and JSON's overhead.
func bodyLimit(req *inference.Request, limit int) int64 {
	const entry = 512
	prompt := entry * int64(len(req.PromptIDs))
	response := entry * int64(1+req.TopLogprobs) * int64(limit)
	return min(transport.LargeBody, transport.SmallBody+int64(req.N)*(response+prompt))
}

// completionAnswer is the answer to POST /v1/completions.
type completionAnswer struct {
	Choices       []choice `json:"choices"`
	WeightVersion *int64   `json:"weight_version"`  // set by easyrl serve
	Checksum      string   `json:"weight_checksum"` // set by easyrl serve
}

// choice is one response of a completionAnswer.
type choice struct {
	Index          int             `json:"index"`
	Text           string          `json:"text"`
	FinishReason   string          `json:"finish_reason"`
	TokenIDs       []int32         `json:"token_ids"`
	PromptTokenIDs []int32         `json:"prompt_token_ids"`
	Logprobs       *choiceLogprobs `json:"logprobs"`
	// PromptLogprobs maps likely token IDs to their log-probabilities at each prompt
	// position; null at the first.
	PromptLogprobs []map[string]struct {
		Logprob *float32 `json:"logprob"`
	} `json:"prompt_logprobs"`
}

// choiceLogprobs holds the log-probabilities of a choice, one entry per token.
type choiceLogprobs struct {
	Tokens        []string              `json:"tokens"`
	TokenLogprobs []*float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]*float32 `json:"top_logprobs"`
}

// decodeAnswer checks a complete answer against its request and converts it. Choices may come in any
// order, each once. The completions have no Version and Checksum.
func decodeAnswer(a *completionAnswer, req *inference.Request, limit int) ([]inference.Completion, error) {
	if len(a.Choices) != req.N {
		return nil, fmt.Errorf("%d choices, expected %d", len(a.Choices), req.N)
	}
	d := newAnswerDecoder(req, limit)
	if err := d.add(a, func(int, inference.Completion) {}); err != nil {
		return nil, err
	}
	return d.completions()
}

// answerDecoder collects the choices of a request from one or more answers.
type answerDecoder struct {
	req   *inference.Request
	limit int                    // maximum number of tokens of a response
	out   []inference.Completion // by index
	seen  []bool                 // by index: out has the choice
	count int                    // number of choices seen
}

// newAnswerDecoder returns an answerDecoder for the answers to req, with up to limit tokens per response.
func newAnswerDecoder(req *inference.Request, limit int) *answerDecoder {
	return &answerDecoder{req: req, limit: limit, out: make([]inference.Completion, req.N), seen: make([]bool, req.N)}
}

// add checks and collects the choices of an answer and calls added with each.
func (d *answerDecoder) add(a *completionAnswer, added func(index int, c inference.Completion)) error {
	for i := range a.Choices {
		ch := &a.Choices[i]
		if ch.Index < 0 || ch.Index >= d.req.N || d.seen[ch.Index] {
			return fmt.Errorf("choice %d has index %d, expected each of 0 to %d once", d.count, ch.Index, d.req.N-1)
		}
		d.seen[ch.Index] = true
		d.count++
		c, err := ch.decode(d.req)
		if err == nil {
			err = checkCompletion(&c, d.limit)
		}
		if err != nil {
			return fmt.Errorf("choice %d: %w", ch.Index, err)
		}
		d.out[ch.Index] = c
		added(ch.Index, c)
	}
	return nil
}

// completions returns the choices in order, or an error if some are missing.
func (d *answerDecoder) completions() ([]inference.Completion, error) {
	if d.count != d.req.N {
		return nil, fmt.Errorf("%d choices, expected %d", d.count, d.req.N)
	}
	return d.out, nil
}

// decode converts a choice in the answer to req.
func (ch *choice) decode(req *inference.Request) (inference.Completion, error) {
	c := inference.Completion{Text: ch.Text}
	var err error
	if c.Finish, err = parseFinish(ch.FinishReason); err != nil {
		return c, err
	}
	if ch.PromptTokenIDs != nil && !slices.Equal(ch.PromptTokenIDs, req.PromptIDs) {
		return c, fmt.Errorf("the server sampled another prompt, with %d tokens instead of %d", len(ch.PromptTokenIDs),
			len(req.PromptIDs))
	}
	if ch.Logprobs == nil {
		return c, errors.New("no log-probabilities")
	}
	c.IDs = ch.TokenIDs
	if c.IDs == nil { // an older server
		if c.IDs, err = tokenIDs(ch.Logprobs.Tokens); err != nil {
			return c, err
		}
	}
	c.Logprobs = make([]float32, len(ch.Logprobs.TokenLogprobs))
	for i, l := range ch.Logprobs.TokenLogprobs {
		if l == nil {
			return c, fmt.Errorf("token %d has log-probability null", i)
		}
		c.Logprobs[i] = *l
	}
	if req.TopLogprobs > 0 {
		if c.Top, err = ch.Logprobs.top(len(c.IDs), req.TopLogprobs); err != nil {
			return c, err
		}
	}
	if req.PromptLogprobs {
		c.PromptLogprobs, err = ch.promptLogprobs(req.PromptIDs)
	}
	return c, err
}

// parseFinish parses finish_reason.
func parseFinish(reason string) (rollout.Finish, error) {
	switch f := rollout.Finish(reason); f {
	case rollout.Stop, rollout.Length, finishAbort:
		return f, nil
	}
	return "", fmt.Errorf("finish reason %q, expected stop, length or abort", reason)
}

// tokenIDs parses tokens of the form token_id:N.
func tokenIDs(tokens []string) ([]int32, error) {
	ids := make([]int32, len(tokens))
	for i, s := range tokens {
		id, err := tokenID(s)
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", i, err)
		}
		ids[i] = id
	}
	return ids, nil
}

// tokenID parses token_id:N.
func tokenID(s string) (int32, error) {
	digits, ok := strings.CutPrefix(s, "token_id:")
	id, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("%.40q, expected a token id or token_id:N", s)
	}
	return int32(id), nil
}

// top returns the k likeliest entries for each of n tokens. A server may send k+1 entries, because it
// always adds the sampled token.
func (l *choiceLogprobs) top(n, k int) ([][]inference.TokenLogprob, error) {
	if len(l.TopLogprobs) != n {
		return nil, fmt.Errorf("%d top log-probabilities for %d tokens", len(l.TopLogprobs), n)
	}
	out := make([][]inference.TokenLogprob, n)
	for i, alternatives := range l.TopLogprobs {
		for s, p := range alternatives {
			id, err := tokenID(s)
			if err != nil || p == nil {
				return nil, errors.Join(fmt.Errorf("top log-probability of token %d is invalid", i), err)
			}
			out[i] = append(out[i], inference.TokenLogprob{ID: id, Logprob: *p})
		}
		out[i] = likeliest(out[i], k)
	}
	return out, nil
}

// likeliest sorts all in descending order of log-probability, and by ID where these are equal, and
// returns the first k.
func likeliest(all []inference.TokenLogprob, k int) []inference.TokenLogprob {
	slices.SortFunc(all, func(a, b inference.TokenLogprob) int {
		if a.Logprob != b.Logprob {
			if a.Logprob > b.Logprob {
				return -1
			}
			return 1
		}
		return int(a.ID) - int(b.ID)
	})
	return all[:min(k, len(all))]
}

// promptLogprobs returns the log-probabilities of the prompt's tokens. Entry 0 is 0.
func (ch *choice) promptLogprobs(prompt []int32) ([]float32, error) {
	if len(ch.PromptLogprobs) != len(prompt) {
		return nil, fmt.Errorf("%d prompt log-probabilities, expected %d", len(ch.PromptLogprobs), len(prompt))
	}
	out := make([]float32, len(prompt))
	for i := 1; i < len(prompt); i++ {
		l := ch.PromptLogprobs[i][strconv.Itoa(int(prompt[i]))].Logprob
		if l == nil {
			return nil, fmt.Errorf("prompt token %d has no log-probability", i)
		}
		out[i] = *l
	}
	return out, checkLogprobs("prompt token", out)
}

// checkCompletion checks a response of any server. An aborted one may be empty.
func checkCompletion(c *inference.Completion, limit int) error {
	switch {
	case len(c.IDs) == 0 && c.Finish != finishAbort:
		return errors.New("no tokens")
	case len(c.IDs) > limit:
		return fmt.Errorf("%d tokens, expected at most %d", len(c.IDs), limit)
	case len(c.IDs) != len(c.Logprobs):
		return fmt.Errorf("%d tokens but %d log-probabilities", len(c.IDs), len(c.Logprobs))
	}
	for i, id := range c.IDs {
		if id < 0 {
			return fmt.Errorf("token %d is %d, expected 0 or more", i, id)
		}
	}
	return checkLogprobs("token", c.Logprobs)
}

// checkLogprobs returns an error if a log-probability is one that no sampled token can have. name says
// what the tokens are, for the error.
func checkLogprobs(name string, logprobs []float32) error {
	const tolerance = 1e-3 // rounding may give a token of probability near 1 a positive log-probability
	for i, l := range logprobs {
		l64 := float64(l)
		if math.IsNaN(l64) || math.IsInf(l64, 0) || l <= noLogprob || l > tolerance {
			return fmt.Errorf("%s %d has log-probability %v, expected more than %d and at most 0", name, i, l,
				noLogprob)
		}
	}
	return nil
}

// seed31 returns a seed of 31 bits, the largest size that all servers accept, for the response at an
// index. The seeds of a request's responses differ.
func seed31(seed uint64, index int) uint32 {
	return ((uint32(seed>>32) ^ uint32(seed)) + uint32(index)) & math.MaxInt32
}

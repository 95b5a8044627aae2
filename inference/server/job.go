package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/rollout"
)

// job is a request that is ready to be sampled: choice i is response i % n of
// prompt i / n.
type job struct {
	*request
	id      string
	created int64
	prompts [][]int32
	texts   []string // of the prompts, where they are echoed
	each    inference.Request
}

// prepare makes r a job.
func (s *Server) prepare(r *request) (*job, error) {
	if r.model != "" && r.model != s.backend.ID() {
		return nil, s.noModel(r.model)
	}
	j := &job{request: r, created: time.Now().Unix(), id: "cmpl-" + randomHex()}
	if r.chat {
		j.id = "chatcmpl-" + randomHex()
	}
	if err := s.tokens(j); err != nil {
		return nil, err
	}
	info := s.backend.Info()
	longest := 0
	for i, ids := range j.prompts {
		if len(ids) == 0 {
			return nil, invalid("prompt", "prompt %d has no tokens", i)
		}
		longest = max(longest, len(ids))
		for k, id := range ids {
			if id < 0 || int(id) >= info.Vocab {
				return nil, invalid("prompt", "prompt %d token %d is %d, expected 0 to %d", i, k, id, info.Vocab-1)
			}
		}
	}
	if len(j.prompts)*j.n > maxResponses {
		return nil, invalid("n", "%d prompts with n %d, expected at most %d responses", len(j.prompts), j.n, maxResponses)
	}
	if err := j.limit(info.Context, longest); err != nil {
		return nil, err
	}
	return j, s.sampling(j)
}

func (s *Server) noModel(name string) error {
	return &failure{status: fasthttp.StatusNotFound, kind: invalidRequest, param: "model", code: "model_not_found",
		message: fmt.Sprintf("model %.200q does not exist, expected %q", name, s.backend.ID())}
}

// tokens fills in the prompts.
func (s *Server) tokens(j *job) error {
	var err error
	if j.chat {
		if s.text == nil {
			return invalid("messages", "model %s has no chat template, expected a prompt of token ids", s.backend.ID())
		}
		done, err := s.alone(len(j.messages) + len(j.tools))
		if err != nil {
			return err
		}
		defer done()
		j.prompts = make([][]int32, 1)
		j.prompts[0], err = s.text.Chat(j.messages, j.tools)
		return err
	}
	if j.texts, j.prompts, err = fields.Prompts(j.prompt, maxPrompts); err != nil {
		return err
	}
	if s.text == nil && (j.texts != nil || j.echo) {
		return invalid("prompt", "model %s has no tokenizer, expected token ids and no echo", s.backend.ID())
	}
	if j.texts != nil {
		done, err := s.alone(len(j.prompt))
		if err != nil {
			return err
		}
		defer done()
	}
	for _, text := range j.texts {
		ids, err := s.text.Encode(text)
		if err != nil {
			return invalid("prompt", "prompt: %v", err)
		}
		j.prompts = append(j.prompts, ids)
	}
	if j.echo && j.texts == nil {
		for _, ids := range j.prompts {
			j.texts = append(j.texts, s.text.Decode(ids))
		}
	}
	return nil
}

// limit fills in how many tokens may be sampled. A conversation's answer may
// fill the context, a completion has 16 unless it says otherwise.
func (j *job) limit(context, longest int) error {
	if j.maxTokens == nil {
		limit := min(16, context-longest)
		if j.chat {
			limit = context - longest
		}
		j.maxTokens = &limit
	}
	if asked := max(*j.maxTokens, 1); longest+asked > context {
		f := invalid("max_tokens", "prompt of %d tokens and max_tokens %d, expected at most %d together, the model's maximum context length", longest, asked, context)
		f.code = "context_length_exceeded"
		return f
	}
	if j.logprobs == nil {
		return nil
	}
	if all := int64(len(j.prompts)*j.n) * int64(*j.maxTokens) * int64(*j.logprobs); all > maxAlternatives {
		return invalid("logprobs", "%d responses of up to %d tokens with %d alternatives each are %d, expected at most %d",
			len(j.prompts)*j.n, *j.maxTokens, *j.logprobs, all, maxAlternatives)
	}
	return nil
}

// sampling fills in what is asked of the backend for each prompt.
func (s *Server) sampling(j *job) error {
	stopIDs := slices.Clone(j.stopIDs)
	if s.text != nil && !j.ignoreEOS {
		for _, id := range s.text.EOS() {
			if !slices.Contains(stopIDs, id) {
				stopIDs = append(stopIDs, id)
			}
		}
	}
	j.each = inference.Request{
		N: j.n, FirstIndex: j.sampleIndex,
		Sampling: inference.Sampling{Temperature: j.temperature, TopP: j.topP, TopK: j.topK, MinP: j.minP,
			MaxTokens: max(*j.maxTokens, 1), Stop: j.stop, StopIDs: stopIDs},
		PromptLogprobs: j.promptLogprobs != nil || (j.echo && j.logprobs != nil),
	}
	if j.seed != nil {
		j.each.Seed = uint64(*j.seed)
	} else {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		j.each.Seed = binary.LittleEndian.Uint64(b[:])
	}
	if j.logprobs != nil {
		j.each.TopLogprobs = *j.logprobs
	}
	held, checksum := s.backend.Held()
	switch {
	case checksum == "":
		return &failure{status: fasthttp.StatusServiceUnavailable, kind: "unavailable", message: "the server holds no weights yet", retry: true}
	case j.version != nil && *j.version != held:
		return stale("weight_version %d, the server holds %d", *j.version, held)
	case j.version != nil:
		j.each.Version = held
	}
	probe := j.each
	probe.PromptIDs = j.prompts[0]
	if err := probe.Validate(); err != nil {
		return err
	}
	return nil
}

func randomHex() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// enter waits for a slot of the backend.
func (s *Server) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > int64(s.cfg.MaxQueue) {
		return &failure{status: fasthttp.StatusTooManyRequests, kind: "rate_limit_error", code: "queue_full",
			message: fmt.Sprintf("%d requests run and %d wait, expected fewer", s.cfg.MaxConcurrent, s.cfg.MaxQueue), retry: true}
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run samples all choices; emit, where it is not nil, hears of tokens as they
// come, from several goroutines, with the choice as Delta.Index.
func (s *Server) run(ctx context.Context, j *job, emit func(inference.Delta)) ([]inference.Completion, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.slots }()
	start := time.Now()
	out := make([]inference.Completion, len(j.prompts)*j.n)
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	for p := range j.prompts {
		tasks.Go(func(ctx context.Context) error {
			got, err := s.prompt(ctx, j, p, emit)
			if err == nil {
				copy(out[p*j.n:], got)
			}
			return err
		})
	}
	err := tasks.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.check(j, out)
	}
	s.served.count(out, err, time.Since(start))
	if err != nil {
		return nil, err
	}
	return out, nil
}

// prompt samples the choices of one prompt.
func (s *Server) prompt(ctx context.Context, j *job, p int, emit func(inference.Delta)) ([]inference.Completion, error) {
	req := j.each
	req.PromptIDs = j.prompts[p]
	var out []inference.Completion
	var err error
	if emit == nil {
		out, err = s.backend.Generate(ctx, req)
	} else {
		out, err = s.backend.Stream(ctx, req, func(d inference.Delta) {
			d.Index += p * j.n
			emit(d)
		})
	}
	switch {
	case err != nil:
		return nil, err
	case len(out) != req.N:
		return nil, fmt.Errorf("backend: %d responses, expected %d", len(out), req.N)
	}
	return out, nil
}

// check finds what may not go out: several weights in one answer, or numbers
// that are none.
func (s *Server) check(j *job, out []inference.Completion) error {
	bad := func(l float32) bool { return math.IsNaN(float64(l)) || math.IsInf(float64(l), 0) }
	for i := range out {
		c := &out[i]
		want := out[0].Version
		if j.version != nil {
			want = *j.version
		}
		switch {
		case c.Version != want:
			return stale("the weights changed to version %d while version %d was sampled", max(c.Version, want), min(c.Version, want))
		case c.Checksum != out[0].Checksum:
			return stale("the weights changed to others of version %d while it was sampled", want)
		case len(c.IDs) != len(c.Logprobs):
			return fmt.Errorf("backend: response %d has %d tokens and %d log-probabilities", i, len(c.IDs), len(c.Logprobs))
		case slices.ContainsFunc(c.Logprobs, bad):
			return fmt.Errorf("backend: response %d has a log-probability that is not finite", i)
		case j.each.TopLogprobs > 0 && len(c.Top) != len(c.IDs):
			return fmt.Errorf("backend: response %d has alternatives to %d tokens, expected %d", i, len(c.Top), len(c.IDs))
		case j.each.PromptLogprobs && (len(c.PromptLogprobs) != len(j.prompts[i/j.n]) || slices.ContainsFunc(c.PromptLogprobs, bad)):
			return fmt.Errorf("backend: response %d lacks its prompt's log-probabilities", i)
		}
	}
	return nil
}

// ending is how a response ended, as clients see it.
type ending struct {
	text   string
	reason string
	stop   any // the stop string or token that ended it, or nil
}

// end takes what ended c out of its text, unless it was to stay.
func (s *Server) end(j *job, c *inference.Completion) ending {
	e := ending{text: c.Text, reason: string(c.Finish)}
	if text, stop, ok := cut(c.Text, j.stop, j.includeStop); ok {
		e.text, e.stop = text, stop
		return e
	}
	if n := len(c.IDs) - 1; c.Finish == rollout.Stop && n >= 0 {
		last := c.IDs[n]
		if slices.Contains(j.stopIDs, last) {
			e.stop = last
		}
		if s.text != nil && !j.includeStop && slices.Contains(j.each.Sampling.StopIDs, last) {
			e.text = s.text.Decode(c.IDs[:n])
		}
	}
	return e
}

// cut ends text where the first of stops begins, or ends.
func cut(text string, stops []string, keep bool) (before, stop string, ok bool) {
	at := -1
	for _, candidate := range stops {
		if i := strings.Index(text, candidate); i >= 0 && (at < 0 || i < at) {
			at, stop = i, candidate
		}
	}
	if at < 0 {
		return text, "", false
	}
	if keep {
		at += len(stop)
	}
	return text[:at], stop, true
}

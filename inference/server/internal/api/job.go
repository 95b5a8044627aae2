package api

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/tokenizer/chat/calls"
)

// Model describes the model that requests are for.
type Model struct {
	ID      string
	Context int  // maximum number of positions of prompt and response
	Vocab   int  // number of token IDs; they start at 0
	Text    Text // nil if the model has no tokenizer, so that requests must use token IDs
	// Held returns the version and checksum of the weights. The checksum is empty before
	// the first weights.
	Held func() (version int64, checksum string)
	// Alone returns an error if a text of this size is long and another long one is being tokenized.
	// Otherwise the caller tokenizes the text and then calls done.
	Alone func(bytes int) (done func(), err error)
}

// Text is a model's tokenizer and chat template. Its methods may be called concurrently.
type Text interface {
	// Encode returns the IDs of text as the start of a sequence.
	Encode(text string) ([]int32, error)
	// Decode returns the text of ids without special tokens.
	Decode(ids []int32) string
	// Piece returns the text of one token, or the name of a special token, which has no
	// text.
	Piece(id int32) (text string, special bool)
	// Chat returns the IDs of a conversation with the generation prompt. messages and
	// tools are in OpenAI's format; variables is an object of further variables of the
	// chat template. tools and variables may be nil. Errors wrap inference.ErrInvalid.
	Chat(messages, tools, variables json.RawMessage) ([]int32, error)
	// Calls returns the format of the tool calls that the chat template asks for.
	Calls() calls.Format
	// EOS returns the tokens that end a response.
	EOS() []int32
}

// Job is a request that is ready to sample. Choice i is response i % N of prompt i / N.
type Job struct {
	*Request
	ID      string
	Created int64 // Unix time in seconds
	Prompts [][]int32
	// Texts holds the text of each prompt. It is nil for a chat, and for token IDs without echo.
	Texts []string
	// Each is the request to the backend for one prompt, without PromptIDs.
	Each inference.Request
	// Calls is the format of tool calls in answers, or calls.None if tool calls stay text.
	Calls calls.Format
	// Thinking reports whether the prompt ends with the start of a thought.
	Thinking bool
}

// Prepare turns r into a job for m. The job keeps r and may set its MaxTokens. Errors are *Failure
// or wrap inference.ErrInvalid.
func (m *Model) Prepare(r *Request) (*Job, error) {
	if r.Model != "" && r.Model != m.ID {
		return nil, m.NotFound(r.Model)
	}
	j := &Job{Request: r, Created: time.Now().Unix(), ID: "cmpl-" + randomHex()}
	if r.Chat {
		j.ID = "chatcmpl-" + randomHex()
	}
	if r.Generate {
		j.ID = cmp.Or(r.RequestID, "generate-"+randomHex())
	}
	if err := m.setPrompts(j); err != nil {
		return nil, err
	}
	m.truncate(j)
	promptField := "prompt"
	if r.Generate {
		promptField = "token_ids"
	}
	longest := 0
	for i, ids := range j.Prompts {
		if len(ids) == 0 {
			return nil, Invalid("prompt", "prompt %d has no tokens", i)
		}
		longest = max(longest, len(ids))
		for k, id := range ids {
			if id < 0 || int(id) >= m.Vocab {
				return nil, Invalid(promptField, "prompt %d token %d is %d, expected 0 to %d", i, k, id, m.Vocab-1)
			}
		}
	}
	if len(j.Prompts)*j.N > MaxResponses {
		return nil, Invalid("n", "%d prompts with n %d, expected at most %d responses", len(j.Prompts), j.N,
			MaxResponses)
	}
	if err := j.limit(m.Context, longest); err != nil {
		return nil, err
	}
	return j, m.setSampling(j)
}

// NotFound returns the error of a request for another model.
func (m *Model) NotFound(name string) error {
	return &Failure{Status: http.StatusNotFound, Kind: InvalidRequest, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("model %.200q does not exist, expected %q", name, m.ID)}
}

// setPrompts sets Prompts and, for some requests, Texts.
func (m *Model) setPrompts(j *Job) error {
	var err error
	if j.Generate {
		j.Prompts = [][]int32{j.TokenIDs}
		return nil
	}
	if j.Chat {
		return m.render(j)
	}
	if j.Texts, j.Prompts, err = decodePrompts(j.Prompt, maxPrompts); err != nil {
		return err
	}
	if m.Text == nil && (j.Texts != nil || j.Echo) {
		return Invalid("prompt", "model %s has no tokenizer, expected token ids and no echo", m.ID)
	}
	if j.Texts != nil {
		done, err := m.Alone(len(j.Prompt))
		if err != nil {
			return err
		}
		defer done()
	}
	for _, text := range j.Texts {
		ids, err := m.Text.Encode(text)
		if err != nil {
			return Invalid("prompt", "prompt: %v", err)
		}
		j.Prompts = append(j.Prompts, ids)
	}
	if j.Echo && j.Texts == nil {
		for _, ids := range j.Prompts {
			j.Texts = append(j.Texts, m.Text.Decode(ids))
		}
	}
	return nil
}

// truncate shortens each prompt to its last j.Truncate tokens, or to as many as fit the context.
func (m *Model) truncate(j *Job) {
	if j.Truncate == nil {
		return
	}
	keep := *j.Truncate
	if keep < 0 {
		keep = m.Context - 1
		if j.MaxTokens != nil {
			keep = max(1, m.Context-max(*j.MaxTokens, 1))
		}
	}
	for i, ids := range j.Prompts {
		if len(ids) <= keep {
			continue
		}
		j.Prompts[i] = ids[len(ids)-keep:]
		if j.Echo {
			j.Texts[i] = m.Text.Decode(j.Prompts[i])
		}
	}
}

// limit sets MaxTokens if the request does not, and returns an error if the answer could exceed the
// context or maxAlternatives. longest is the length of the longest prompt. By default, the answer
// to a text prompt has 16 tokens, as OpenAI's does, and any other answer may fill the context.
func (j *Job) limit(context, longest int) error {
	if j.MaxTokens == nil {
		limit := min(16, context-longest)
		if j.Chat || j.Generate {
			limit = context - longest
		}
		j.MaxTokens = &limit
	}
	// The backend samples at least one token, even if the request wants none.
	if asked := max(*j.MaxTokens, 1); longest+asked > context {
		f := Invalid("max_tokens", "This model's maximum context length is %d tokens. "+
			"However, you requested %d tokens (%d in the prompt, %d in the completion). "+
			"Shorten the prompt or lower max_tokens",
			context, longest+asked, longest, asked)
		f.Code = "context_length_exceeded"
		return f
	}
	tokens := int64(0)
	for _, ids := range j.Prompts {
		tokens += int64(len(ids))
	}
	alternatives := tokens * int64(j.promptTop())
	if j.Logprobs != nil {
		alternatives += int64(len(j.Prompts)) * int64(*j.MaxTokens) * int64(*j.Logprobs)
	}
	alternatives *= int64(j.N)
	if alternatives > maxAlternatives {
		return Invalid("logprobs",
			"%d responses of up to %d tokens, to prompts of %d tokens, have %d alternatives, expected at most %d",
			len(j.Prompts)*j.N, *j.MaxTokens, tokens, alternatives, maxAlternatives)
	}
	return nil
}

// promptTop returns the number of alternatives of each prompt token.
func (j *Job) promptTop() int {
	n := 0
	if j.PromptLogprobs != nil {
		n = *j.PromptLogprobs
	}
	if j.Echo && j.Logprobs != nil {
		n = max(n, *j.Logprobs)
	}
	return n
}

// setSampling sets Each. It returns an error if the server does not hold the requested weights.
func (m *Model) setSampling(j *Job) error {
	stopIDs := slices.Clone(j.StopIDs)
	if m.Text != nil && !j.IgnoreEOS {
		for _, id := range m.Text.EOS() {
			if !slices.Contains(stopIDs, id) {
				stopIDs = append(stopIDs, id)
			}
		}
	}
	j.Each = inference.Request{
		N: j.N, FirstIndex: j.SampleIndex,
		Sampling: inference.Sampling{Temperature: float32(j.Temperature), TopP: float32(j.TopP), TopK: j.TopK,
			MinP: float32(j.MinP), MaxTokens: max(*j.MaxTokens, 1), Stop: j.Stop, StopIDs: stopIDs},
		PromptLogprobs: j.PromptLogprobs != nil || (j.Echo && j.Logprobs != nil), PromptTop: j.promptTop(),
	}
	if j.Seed != nil {
		j.Each.Seed = uint64(*j.Seed)
	} else {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		j.Each.Seed = binary.LittleEndian.Uint64(b[:])
	}
	if j.Logprobs != nil {
		j.Each.TopLogprobs = *j.Logprobs
	}
	held, checksum := m.Held()
	switch {
	case checksum == "":
		return &Failure{Status: http.StatusServiceUnavailable, Kind: "unavailable",
			Message: "the server has no weights yet", Retry: true}
	case j.Version != nil && *j.Version != held:
		return Stale("weight_version is %d, but the server holds %d", *j.Version, held)
	case j.Version != nil:
		j.Each.Version = held
	}
	first := j.Each
	first.PromptIDs = j.Prompts[0]
	return first.Validate()
}

// Check returns an error if the choices must not be sent: a 409 if they were sampled by different
// weights or by a version other than the requested one, or the error of CheckNumbers.
func (j *Job) Check(out []inference.Completion) error {
	for i := range out {
		c := &out[i]
		want := out[0].Version
		if j.Version != nil {
			want = *j.Version
		}
		switch {
		case c.Version != want:
			return Stale("the weights changed to version %d while version %d was sampled", max(c.Version, want),
				min(c.Version, want))
		case c.Checksum != out[0].Checksum:
			return Stale("the weights of version %d were replaced while it was sampled", want)
		}
		if err := j.CheckNumbers(i, c); err != nil {
			return err
		}
	}
	return nil
}

// CheckNumbers returns an error if choice i lacks log-probabilities or has one that is not finite.
func (j *Job) CheckNumbers(i int, c *inference.Completion) error {
	bad := func(l float32) bool { return math.IsNaN(float64(l)) || math.IsInf(float64(l), 0) }
	switch {
	case len(c.IDs) != len(c.Logprobs):
		return fmt.Errorf("backend: response %d has %d tokens but %d log-probabilities", i, len(c.IDs), len(c.Logprobs))
	case slices.ContainsFunc(c.Logprobs, bad):
		return fmt.Errorf("backend: response %d has a log-probability that is not finite", i)
	case j.Each.TopLogprobs > 0 && len(c.Top) != len(c.IDs):
		return fmt.Errorf("backend: response %d has alternatives for %d tokens, expected %d", i, len(c.Top), len(c.IDs))
	case j.Each.PromptTop > 0 && len(c.PromptTop) != len(j.Prompts[i/j.N]):
		return fmt.Errorf("backend: response %d lacks alternatives to its prompt's tokens", i)
	case j.Each.PromptLogprobs && (len(c.PromptLogprobs) != len(j.Prompts[i/j.N]) ||
		slices.ContainsFunc(c.PromptLogprobs, bad)):
		return fmt.Errorf("backend: response %d lacks its prompt's log-probabilities", i)
	}
	return nil
}

// randomHex returns 24 random hexadecimal digits.
func randomHex() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

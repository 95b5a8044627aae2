// Package openai defines the types of OpenAI's answers, with vLLM's additions.
package openai

// Answer is a completion, a chat completion, a chunk of one, or an answer of token IDs.
type Answer struct {
	ID        string   `json:"id,omitempty"`
	Object    string   `json:"object,omitempty"`
	RequestID string   `json:"request_id,omitempty"` // of an answer of token IDs, instead of ID and Object
	Mode      string   `json:"output_mode,omitempty"`
	Created   int64    `json:"created"`
	Model     string   `json:"model"`
	Version   int64    `json:"weight_version"`
	Checksum  string   `json:"weight_checksum,omitempty"` // distinguishes weights of one version
	Choices   []Choice `json:"choices"`
	Usage     *Usage   `json:"usage,omitempty"`
	PromptIDs []int32  `json:"prompt_token_ids,omitempty"` // of a conversation or token IDs
	// PromptLogprobs is Choice.PromptLogprobs of an answer of token IDs.
	PromptLogprobs []any `json:"prompt_logprobs,omitempty"`
}

// Choice has a text, a message or a delta.
type Choice struct {
	Index          int      `json:"index"`
	Text           *string  `json:"text,omitempty"`
	Message        *Message `json:"message,omitempty"`
	Delta          *Delta   `json:"delta,omitempty"`
	Logprobs       any      `json:"logprobs"`
	Finish         *string  `json:"finish_reason"`
	Stop           any      `json:"stop_reason"`
	IDs            []int32  `json:"token_ids,omitempty"`
	PromptIDs      []int32  `json:"prompt_token_ids,omitempty"`
	PromptLogprobs []any    `json:"prompt_logprobs,omitempty"`
	Versions       []Span   `json:"weight_versions,omitempty"`
}

// Span is the version of the weights that sampled the tokens Start to End-1.
type Span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// Message is a turn of the assistant.
type Message struct {
	Role    string  `json:"role"`
	Content *string `json:"content"` // nil if there are only calls
	Refusal *string `json:"refusal"`
	Calls   []Call  `json:"tool_calls,omitempty"`
}

// Delta is a part of a message.
type Delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Calls   []Call  `json:"tool_calls,omitempty"`
}

// Call is a call of a tool.
type Call struct {
	Index    *int     `json:"index,omitempty"` // among the calls of a message, in a Delta
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is what a Call calls.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// Usage counts tokens.
type Usage struct {
	Prompt int `json:"prompt_tokens"`
	Answer int `json:"completion_tokens"`
	Total  int `json:"total_tokens"`
}

// TextLogprobs holds a completion's log-probabilities, one entry per token.
type TextLogprobs struct {
	Offsets  []int                `json:"text_offset"` // in characters
	Logprobs []any                `json:"token_logprobs"`
	Tokens   []string             `json:"tokens"`
	Top      []map[string]float32 `json:"top_logprobs"`
}

// ChatLogprobs holds a message's log-probabilities.
type ChatLogprobs struct {
	Content []TokenLogprob `json:"content"`
	Refusal []TokenLogprob `json:"refusal"`
}

// TokenLogprob is a token's log-probability, with alternatives.
type TokenLogprob struct {
	Token   string          `json:"token"`
	Logprob float32         `json:"logprob"`
	Bytes   []int           `json:"bytes"`
	Top     *[]TokenLogprob `json:"top_logprobs,omitempty"`
}

// IDLogprobs holds the log-probabilities of token IDs.
type IDLogprobs struct {
	Content []IDLogprob `json:"content"`
}

// IDLogprob is the log-probability of a token ID, with alternatives. Older clients read
// Token, newer ones ID.
type IDLogprob struct {
	Token   string      `json:"token"` // token_id:N
	ID      int32       `json:"token_id"`
	Logprob float32     `json:"logprob"`
	Top     []IDLogprob `json:"top_logprobs,omitempty"` // the token itself first
}

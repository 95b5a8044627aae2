package api

// answer is a completion, a chat completion, a chunk of one, or an answer of token IDs.
type answer struct {
	ID        string   `json:"id,omitempty"`
	Object    string   `json:"object,omitempty"`
	RequestID string   `json:"request_id,omitempty"` // replaces ID and Object in an answer of token IDs
	Mode      string   `json:"output_mode,omitempty"`
	Created   int64    `json:"created"`
	Model     string   `json:"model"`
	Version   int64    `json:"weight_version"`
	Checksum  string   `json:"weight_checksum,omitempty"` // distinguishes weights of one version
	Choices   []choice `json:"choices"`
	Usage     *usage   `json:"usage,omitempty"`
	PromptIDs []int32  `json:"prompt_token_ids,omitempty"` // in text completions, choice.PromptIDs instead
	// PromptLogprobs is set in an answer of token IDs. Other answers have choice.PromptLogprobs.
	PromptLogprobs []any `json:"prompt_logprobs,omitempty"`
}

// choice is one response. It has a Text, a Message, a Delta or only IDs.
type choice struct {
	Index          int            `json:"index"`
	Text           *string        `json:"text,omitempty"`
	Message        *answerMessage `json:"message,omitempty"`
	Delta          *messageDelta  `json:"delta,omitempty"`
	Logprobs       any            `json:"logprobs"`
	Finish         *string        `json:"finish_reason"`
	Stop           any            `json:"stop_reason"`
	IDs            []int32        `json:"token_ids,omitempty"`
	PromptIDs      []int32        `json:"prompt_token_ids,omitempty"`
	PromptLogprobs []any          `json:"prompt_logprobs,omitempty"`
	Versions       []span         `json:"weight_versions,omitempty"`
}

// span names the version of the weights that sampled the tokens Start to End-1.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// answerMessage is a turn of the assistant.
type answerMessage struct {
	Role    string  `json:"role"`
	Content *string `json:"content"` // nil if there are only calls
	Refusal *string `json:"refusal"`
	Calls   []call  `json:"tool_calls,omitempty"`
}

type messageDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Calls   []call  `json:"tool_calls,omitempty"`
}

// call is a call of a tool.
type call struct {
	Index    *int     `json:"index,omitempty"` // position among the message's calls; set in a messageDelta
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

// function is the function that a call names, with its arguments.
type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// usage counts tokens.
type usage struct {
	Prompt int `json:"prompt_tokens"`
	Answer int `json:"completion_tokens"`
	Total  int `json:"total_tokens"`
}

// textLogprobs holds a completion's log-probabilities, one entry per token.
type textLogprobs struct {
	Offsets  []int                `json:"text_offset"` // start of each token in the text, in characters
	Logprobs []any                `json:"token_logprobs"`
	Tokens   []string             `json:"tokens"`
	Top      []map[string]float32 `json:"top_logprobs"`
}

// chatLogprobs holds a message's log-probabilities.
type chatLogprobs struct {
	Content []tokenLogprob `json:"content"`
	Refusal []tokenLogprob `json:"refusal"`
}

// tokenLogprob is a token's log-probability, with alternatives.
type tokenLogprob struct {
	Token   string          `json:"token"`
	Logprob float32         `json:"logprob"`
	Bytes   []int           `json:"bytes"`
	Top     *[]tokenLogprob `json:"top_logprobs,omitempty"`
}

// idLogprobs holds the log-probabilities of token IDs.
type idLogprobs struct {
	Content []idLogprob `json:"content"`
}

// idLogprob is the log-probability of a token ID, with alternatives. Older clients read
// Token, newer ones ID.
type idLogprob struct {
	Token   string      `json:"token"` // token_id:N
	ID      int32       `json:"token_id"`
	Logprob float32     `json:"logprob"`
	Top     []idLogprob `json:"top_logprobs,omitempty"` // the token itself first
}

package api

// TokenizeRequest asks for the tokens of a prompt or of a conversation.
type TokenizeRequest struct {
	Request         // only the conversation and the model are set
	Text    *string // the prompt; nil for a conversation
	Pieces  bool    // return the tokens' texts too
}

// DecodeTokenize decodes the body of POST /tokenize.
func DecodeTokenize(data []byte) (*TokenizeRequest, error) {
	r := &TokenizeRequest{Request: Request{Chat: true}}
	return r, decode(data, r.fields())
}

func (r *TokenizeRequest) fields() []field {
	return append(r.conversation(), bind("prompt", &r.Text, "a string"),
		bind("return_token_strs", &r.Pieces, "true or false"),
		bind("model", &r.Model, "a string"))
}

// Validate checks the prompt or the conversation.
func (r *TokenizeRequest) Validate() error {
	switch {
	case r.Text == nil:
		return r.validateChat()
	case r.Messages != nil || r.Tools != nil || r.Variables != nil:
		return Invalid("prompt", "prompt beside messages, tools or chat_template_kwargs, expected one or the other")
	}
	return nil
}

// Size returns the number of bytes to tokenize.
func (r *TokenizeRequest) Size() int {
	if r.Text != nil {
		return len(*r.Text)
	}
	return len(r.Messages) + len(r.Tools) + len(r.Variables)
}

// DetokenizeRequest asks for the text of tokens.
type DetokenizeRequest struct {
	Model  string
	Tokens tokenIDs
}

// DecodeDetokenize decodes the body of POST /detokenize.
func DecodeDetokenize(data []byte) (*DetokenizeRequest, error) {
	r := &DetokenizeRequest{}
	return r, decode(data, r.fields())
}

func (r *DetokenizeRequest) fields() []field {
	return []field{bind("tokens", &r.Tokens, "token ids"), bind("model", &r.Model, "a string")}
}

// Validate checks the tokens against a vocabulary of vocab tokens.
func (r *DetokenizeRequest) Validate(vocab int) error {
	if r.Tokens == nil {
		return Invalid("tokens", "no tokens, expected token ids")
	}
	for i, id := range r.Tokens {
		if id < 0 || int(id) >= vocab {
			return Invalid("tokens", "tokens[%d] is %d, expected 0 to %d", i, id, vocab-1)
		}
	}
	return nil
}

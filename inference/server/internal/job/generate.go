package job

import (
	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
)

// DecodeGenerate decodes a request in the form of vLLM's POST /inference/v1/generate. Its
// errors are those of Decode.
func DecodeGenerate(data []byte) (*Request, error) {
	r := &Request{Generate: true, N: 1, Temperature: 1, TopP: 1}
	var params fields.Object
	var stream, text bool
	mode := "tokens"
	list := []fields.Field{
		fields.To("model", &r.Model, "a string"), fields.To("request_id", &r.RequestID, "a string"),
		fields.To("token_ids", &r.TokenIDs, "token ids"), fields.To("sampling_params", &params, "an object"),
		fields.To("return_token_ids", &r.ReturnIDs, "true or false"), fields.To("weight_version", &r.Version, "an integer"),
		fields.To("output_mode", &mode, "\"tokens\""), fields.To("stream", &stream, "false"),
	}
	if err := fields.Decode(data, list); err != nil {
		return nil, err
	}
	switch {
	case stream:
		return nil, reply.Invalid("stream", "stream true is not supported, expected false")
	case mode != "tokens":
		return nil, reply.Invalid("output_mode", "output_mode %.40q is not supported, expected \"tokens\"", mode)
	case len(r.TokenIDs) == 0:
		return nil, reply.Invalid("token_ids", "no token_ids, expected at least one token id")
	case len(r.RequestID) > maxRequestID:
		return nil, reply.Invalid("request_id", "request_id has %d bytes, expected at most %d", len(r.RequestID), maxRequestID)
	case params == nil:
		return nil, reply.Invalid("sampling_params", "no sampling_params, expected an object")
	}
	list = append(r.sampling(), fields.To("logprobs", &r.Logprobs, "an integer"), fields.To("return_token_ids", &r.ReturnIDs, "true or false"))
	for _, name := range []string{"skip_special_tokens", "spaces_between_special_tokens", "detokenize"} { // the answer has no text
		list = append(list, fields.To(name, &text, "true or false"))
	}
	if err := fields.Decode(params, list); err != nil {
		return nil, err
	}
	return r, r.validate()
}

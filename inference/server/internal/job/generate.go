package job

import (
	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
)

// DecodeGenerate decodes a request in the form of vLLM's POST /inference/v1/generate. Its
// errors are those of Decode.
func DecodeGenerate(data []byte) (*Request, error) {
	r := &Request{Generate: true, N: 1, Temperature: 1, TopP: 1}
	x := generation{mode: "tokens"}
	if err := fields.Decode(data, r.generate(&x)); err != nil {
		return nil, err
	}
	switch {
	case x.stream:
		return nil, reply.Invalid("stream", "stream true is not supported, expected false")
	case x.mode != "tokens":
		return nil, reply.Invalid("output_mode", "output_mode %.40q is not supported, expected \"tokens\"", x.mode)
	case len(r.TokenIDs) == 0:
		return nil, reply.Invalid("token_ids", "no token_ids, expected at least one token id")
	case len(r.RequestID) > MaxRequestID:
		return nil, reply.Invalid("request_id", "request_id has %d bytes, expected at most %d", len(r.RequestID), MaxRequestID)
	case x.params == nil:
		return nil, reply.Invalid("sampling_params", "no sampling_params, expected an object")
	}
	if err := fields.Decode(x.params, r.params(&x)); err != nil {
		return nil, err
	}
	return r, r.validate()
}

// generation holds fields from which DecodeGenerate sets others.
type generation struct {
	params       fields.Object
	stream, text bool
	mode         string
}

func (r *Request) generate(x *generation) []fields.Field {
	return []fields.Field{
		fields.To("model", &r.Model, "a string"), fields.To("request_id", &r.RequestID, "a string"),
		fields.To("token_ids", &r.TokenIDs, "token ids"), fields.To("sampling_params", &x.params, "an object"),
		fields.To("return_token_ids", &r.ReturnIDs, "true or false"), fields.To("weight_version", &r.Version, "an integer"),
		fields.To("output_mode", &x.mode, "\"tokens\""), fields.To("stream", &x.stream, "false"),
	}
}

func (r *Request) params(x *generation) []fields.Field {
	list := append(r.sampling(), fields.To("logprobs", &r.Logprobs, "an integer"), fields.To("return_token_ids", &r.ReturnIDs, "true or false"))
	for _, name := range []string{"skip_special_tokens", "spaces_between_special_tokens", "detokenize"} { // the answer has no text
		list = append(list, fields.To(name, &x.text, "true or false"))
	}
	return list
}

// GenerateFields returns the fields of a request of token IDs and those of its sampling
// parameters.
func GenerateFields() (request, params []fields.Field) {
	r, x := &Request{Generate: true}, &generation{}
	return r.generate(x), r.params(x)
}

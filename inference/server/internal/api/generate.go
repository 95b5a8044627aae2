package api

// DecodeGenerate decodes a request in the form of vLLM's POST /inference/v1/generate. Its
// errors are those of Decode.
func DecodeGenerate(data []byte) (*Request, error) {
	r := &Request{Generate: true, N: 1, Temperature: 1, TopP: 1}
	x := generation{mode: "tokens"}
	if err := decode(data, r.generate(&x)); err != nil {
		return nil, err
	}
	switch {
	case x.stream:
		return nil, Invalid("stream", "stream true is not supported, expected false")
	case x.mode != "tokens":
		return nil, Invalid("output_mode", "output_mode %.40q is not supported, expected \"tokens\"", x.mode)
	case len(r.TokenIDs) == 0:
		return nil, Invalid("token_ids", "no token_ids, expected at least one token id")
	case len(r.RequestID) > maxRequestID:
		return nil, Invalid("request_id", "request_id has %d bytes, expected at most %d", len(r.RequestID),
			maxRequestID)
	case x.params == nil:
		return nil, Invalid("sampling_params", "no sampling_params, expected an object")
	}
	if err := decode(x.params, r.params(&x)); err != nil {
		return nil, err
	}
	return r, r.validate()
}

// generation holds fields from which DecodeGenerate sets others.
type generation struct {
	params       object
	stream, text bool
	mode         string
}

func (r *Request) generate(x *generation) []field {
	return []field{
		to("model", &r.Model, "a string"), to("request_id", &r.RequestID, "a string"),
		to("token_ids", &r.TokenIDs, "token ids"), to("sampling_params", &x.params, "an object"),
		to("return_token_ids", &r.ReturnIDs, "true or false"), to("weight_version", &r.Version, "an integer"),
		to("output_mode", &x.mode, "\"tokens\""), to("stream", &x.stream, "false"),
	}
}

func (r *Request) params(x *generation) []field {
	list := append(r.sampling(), to("logprobs", &r.Logprobs, "an integer"),
		to("return_token_ids", &r.ReturnIDs, "true or false"))
	// The answer has no text, so these have no effect.
	for _, name := range []string{"skip_special_tokens", "spaces_between_special_tokens", "detokenize"} {
		list = append(list, to(name, &x.text, "true or false"))
	}
	return list
}

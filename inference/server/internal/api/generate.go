package api

// DecodeGenerate decodes a request in the form of vLLM's POST /inference/v1/generate. Its
// errors are *Failure.
func DecodeGenerate(data []byte) (*Request, error) {
	r := &Request{Generate: true, N: 1, Temperature: 1, TopP: 1}
	x := generateExtras{mode: "tokens"}
	if err := decode(data, r.generateFields(&x)); err != nil {
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
	if err := decode(x.params, r.generateParams(&x)); err != nil {
		return nil, err
	}
	return r, r.validate()
}

// generateExtras holds fields that DecodeGenerate checks but does not keep.
type generateExtras struct {
	params  object
	stream  bool
	mode    string
	ignored bool
}

// generateFields returns the fields of the request itself.
func (r *Request) generateFields(x *generateExtras) []field {
	return []field{
		bind("model", &r.Model, "a string"), bind("request_id", &r.RequestID, "a string"),
		bind("token_ids", &r.TokenIDs, "token ids"), bind("sampling_params", &x.params, "an object"),
		bind("return_token_ids", &r.ReturnIDs, "true or false"), bind("weight_version", &r.Version, "an integer"),
		bind("output_mode", &x.mode, "\"tokens\""), bind("stream", &x.stream, "false"),
	}
}

// generateParams returns the fields of sampling_params.
func (r *Request) generateParams(x *generateExtras) []field {
	list := append(r.samplingFields(), bind("logprobs", &r.Logprobs, "an integer"),
		bind("return_token_ids", &r.ReturnIDs, "true or false"))
	// These control the text, which the answer does not have.
	for _, name := range []string{"skip_special_tokens", "spaces_between_special_tokens", "detokenize"} {
		list = append(list, bind(name, &x.ignored, "true or false"))
	}
	return list
}

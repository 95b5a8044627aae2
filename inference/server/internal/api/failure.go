package api

import (
	"fmt"
	"net/http"
)

const (
	// InvalidRequest is the kind of most failures.
	InvalidRequest = "invalid_request_error"
	// NotJSON replaces an answer that cannot be encoded.
	NotJSON = `{"error":{"message":"the answer has a value that JSON cannot represent","type":"server_error",` +
		`"param":null,"code":null}}`
)

// Failure is an error as clients see it.
type Failure struct {
	Status              int    // HTTP status
	Kind, Message, Code string // OpenAI's type, message and code
	Param               string // the faulty field; may be empty
	Allow               string // methods that a 405 lists
	Retry               bool   // adds Retry-After
}

func (f *Failure) Error() string { return f.Message }

// Invalid returns a 400 that names the faulty field.
func Invalid(param, format string, args ...any) *Failure {
	return &Failure{Status: http.StatusBadRequest, Kind: InvalidRequest, Param: param,
		Message: fmt.Sprintf(format, args...)}
}

// Stale returns a 409 for a request for other weights.
func Stale(format string, args ...any) *Failure {
	return &Failure{Status: http.StatusConflict, Kind: "stale_weights", Code: "stale_weights",
		Message: fmt.Sprintf(format, args...)}
}

// failureBody is a failure in OpenAI's format.
type failureBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
	Status int `json:"status,omitempty"` // set only if the answer has begun, with HTTP status 200
}

// Body returns the failure in OpenAI's format, to be encoded as JSON.
func (f *Failure) Body() any { return f.body() }

func (f *Failure) body() failureBody {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	var b failureBody
	b.Error.Message, b.Error.Type, b.Error.Param, b.Error.Code = f.Message, f.Kind, orNull(f.Param), orNull(f.Code)
	return b
}

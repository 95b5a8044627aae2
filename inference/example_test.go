package inference_test

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/inference"
)

// Validate reports all faults of a request together.
func ExampleRequest_Validate() {
	req := inference.Request{PromptIDs: []int32{5, 6}, N: 8, Seed: 1,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 48}}
	fmt.Println(req.Validate())

	req.N, req.Sampling.TopP = 0, 2
	err := req.Validate()
	fmt.Println(err)
	fmt.Println(errors.Is(err, inference.ErrInvalid))
	// Output:
	// <nil>
	// invalid request: 0 responses, expected 1 to 65536
	// top-p 2, expected more than 0 and at most 1
	// true
}

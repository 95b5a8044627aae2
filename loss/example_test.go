package loss_test

import (
	"fmt"

	"github.com/easyrl/easyrl/loss"
)

// Two of four responses are right: the group's mean is 0.5.
func ExampleAdvantages() {
	rewards := []float64{1, 0, 0, 1}
	fmt.Println(loss.Advantages(loss.GroupMeanAdvantage, rewards))
	fmt.Printf("%.3f\n", loss.Advantages(loss.GroupAdvantage, rewards))
	// Output:
	// [0.5 -0.5 -0.5 0.5]
	// [0.866 -0.866 -0.866 0.866]
}

// GRPO over two responses, of two tokens and of one. On-policy all ratios are 1, so
// the gradient of a token is the negative of its advantage times its weight.
func ExampleObjective_Eval() {
	objective, err := loss.New(loss.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	logprobs := []float32{-0.5, -1.5, -0.25}
	result, err := objective.Eval(loss.Vars{
		Policy: logprobs, Old: logprobs, Behaviour: logprobs,
		Advantage: []float32{1, 1, -1},
		Weight:    []float32{1, 1, 1},
		Lengths:   []int{2, 1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Grad)
	// Output: [-1 -1 1]
}

// Gradients accumulate as sums; a step divides them once.
func ExampleAggregation_Denominator() {
	const responses, tokens, constant = 4, 100, 48
	for _, a := range []loss.Aggregation{loss.TokenMean, loss.SequenceMean, loss.Constant} {
		fmt.Println(a, a.Denominator(responses, tokens, constant))
	}
	// Output:
	// token-mean 100
	// sequence-mean 4
	// constant 192
}

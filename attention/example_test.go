package attention_test

import (
	"fmt"

	"github.com/easyrl/easyrl/attention"
)

// A prompt of three tokens and two responses to it: the prompt's rows are shared, and
// a response's last token, which predicts nothing, has no row.
func ExampleLayout_AddResponse() {
	var l attention.Layout
	prompt := l.Add(-1, []int32{10, 11, 12}, false)
	l.AddResponse(prompt, []int32{20, 21})
	l.AddResponse(prompt, []int32{30, 31})
	fmt.Println("tokens   ", l.Tokens)
	fmt.Println("positions", l.Positions)
	for _, t := range l.Targets {
		fmt.Printf("row %d predicts %d\n", t.Row, t.Token)
	}
	// Output:
	// tokens    [10 11 12 20 30]
	// positions [0 1 2 3 3]
	// row 2 predicts 20
	// row 3 predicts 21
	// row 2 predicts 30
	// row 4 predicts 31
}

// A response sees its prompt and itself, but no other response.
func ExampleLayout_Visible() {
	var l attention.Layout
	l.AddGroup([]int32{10, 11}, [][]int32{{20, 21}, {30}})
	for query := range l.Rows() {
		for key := range l.Rows() {
			if l.Visible(query, key) {
				fmt.Print("x")
			} else {
				fmt.Print(".")
			}
		}
		fmt.Println()
	}
	// Output:
	// x....
	// xx...
	// xxx..
	// xxxx.
	// xx..x
}

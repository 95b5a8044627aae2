package reward_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// Kind "math" compares answers by value: \frac{1}{2} equals 0.5.
func ExampleNew() {
	c := reward.Default()
	c.Kind = reward.Math
	scorer, err := reward.New(c, 512)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scorer.Close() //nolint:errcheck // starts no program
	prompt := &rollout.Prompt{ID: "p1", Answer: json.RawMessage(`"0.5"`)}
	for _, text := range []string{`So the answer is \boxed{\frac{1}{2}}.`, "The answer is 2."} {
		score, err := scorer.Score(context.Background(),
			reward.Input{Prompt: prompt, Text: text, Finish: rollout.Stop, Length: 9})
		fmt.Println(score.Value, score.Right(), err)
	}
	// Output:
	// 1 true <nil>
	// 0 false <nil>
}

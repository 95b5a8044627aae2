package reward

import (
	"context"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/reward/queue"
	"github.com/easyrl/easyrl/reward/wire"
)

// ErrTimeout is wrapped by the error of a score that took too long.
var ErrTimeout = program.ErrTimeout

// outcome is a score, or why there is none.
type outcome = queue.Outcome[Score]

// asking scores by asking the workers of a queue, which are others' programs and
// services.
type asking struct {
	*queue.Queue[Input, Score]
	name string // in errors
}

func newAsking(name string, cfg queue.Config, worker func() queue.Worker[Input, Score]) asking {
	return asking{queue.New(cfg, worker), name}
}

// Score waits for its turn, which takes no time from the answer's.
func (a asking) Score(ctx context.Context, in Input) (Score, error) {
	score, err := a.Do(ctx, in, !in.trial)
	if err != nil {
		return Score{}, fmt.Errorf("%s: prompt %s: %w", a.name, in.Prompt.ID, err)
	}
	return score, nil
}

func newRequest(id int64, in Input) wire.Request {
	return wire.Request{ID: id, PromptID: in.Prompt.ID, Prompt: in.Prompt.Text, Answer: in.Prompt.Answer, Source: in.Prompt.Source,
		Response: in.Text, Finish: string(in.Finish), Length: in.Length}
}

// outcomeOf is that of an answer that was checked. An error that is reported is
// final: who reports it knows what else to try.
func outcomeOf(a *wire.Answer, who string) outcome {
	if a.Error != "" {
		return outcome{Err: fmt.Errorf("%s reports: %s", who, program.OneLine([]byte(a.Error)))}
	}
	score := Score{Value: *a.Score, Parts: a.Parts}
	if a.Right != nil {
		score.Verdict = verdict(*a.Right)
	}
	return outcome{Value: score}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

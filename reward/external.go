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

// CallConfig holds the keys that kinds "command" and "http" share.
type CallConfig struct {
	// Batch is the most responses that "command" and "http" hand over at once: what
	// waits is taken, and nothing is waited for.
	Batch int `toml:"batch" unit:"responses"`
	// Timeout of "command" and "http" in seconds, for one answer, counted from
	// when it is asked for; a program's first one includes its start.
	Timeout float64 `toml:"timeout" unit:"s"`
	// Retries of "command" and "http" after a failure that may pass. A service
	// that answers nothing at all is tried for a minute, unless this is 0.
	Retries int `toml:"retries" unit:"times"`
}

func callKeys() []string { return []string{"batch", "timeout", "retries"} }

func defaultCalls() CallConfig { return CallConfig{Batch: 1, Timeout: 30, Retries: 2} }

// The largest values of keys; a larger one is a slip of the keyboard.
const (
	mostWorkers = 1024
	mostBatch   = 1024
	mostRetries = 100
	maxTimeout  = 86400 // a day, in seconds
)

func checkCalls(v *validation, r *Rule) {
	v.count("batch", r.Batch, 1, mostBatch)
	v.expect(r.Timeout > 0 && r.Timeout <= maxTimeout, "timeout", "is %v, expected more than 0 and at most %v seconds", r.Timeout, maxTimeout)
	v.count("retries", r.Retries, 0, mostRetries)
}

// outcome is a score, or why there is none.
type outcome = queue.Outcome[Score]

// asking scores by asking the programs or services of a queue. Errors name it.
type asking struct {
	name string
	*queue.Queue[Input, Score]
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

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
	// Maximum calls in flight: processes of "command", requests of "http". 0 means 4 processes
	// or 8 requests.
	Concurrency int `toml:"concurrency" unit:"calls"`
	// Maximum responses per call of "command" and "http". easyrl sends whatever is queued and
	// never waits to fill a batch.
	Batch int `toml:"batch" unit:"responses"`
	// Timeout for one score of "command" and "http", counted from the request. The first score
	// of a program includes its startup.
	Timeout float64 `toml:"timeout" unit:"s"`
	// Retries is how often a call is repeated after a failure that may pass. A service
	// that does not answer at all is tried for a minute, unless Retries is 0.
	Retries int `toml:"-"`
}

// callKeys returns the keys of CallConfig.
func callKeys() []string { return []string{"concurrency", "batch", "timeout"} }

// defaultCalls returns the default values of CallConfig.
func defaultCalls() CallConfig { return CallConfig{Batch: 1, Timeout: 30, Retries: 2} }

// Maximum values of keys. Larger ones are typing errors.
const (
	maxWorkers = 1024
	maxBatch   = 1024
	maxTimeout = 86400 // a day, in seconds
)

// checkCalls reports faults of the keys of CallConfig.
func checkCalls(v *validation, r *Rule) {
	v.within("concurrency", r.Concurrency, 0, maxWorkers)
	v.within("batch", r.Batch, 1, maxBatch)
	v.expect(r.Timeout > 0 && r.Timeout <= maxTimeout, "timeout", "is %v, expected more than 0 and at most %v seconds",
		r.Timeout, maxTimeout)
}

// outcome is a score or the reason that there is none.
type outcome = queue.Outcome[Score]

// queued scores with the programs or services of a queue. name appears in errors.
type queued struct {
	name string
	*queue.Queue[Input, Score]
}

// Score waits in the queue, then for the answer. Time in the queue does not count
// towards the timeout.
func (a queued) Score(ctx context.Context, in Input) (Score, error) {
	score, err := a.Do(ctx, in, !in.trial)
	if err != nil {
		return Score{}, fmt.Errorf("%s: prompt %s: %w", a.name, in.Prompt.ID, err)
	}
	return score, nil
}

// newRequest returns the request to score a response.
func newRequest(id int64, in Input) wire.Request {
	return wire.Request{ID: id, PromptID: in.Prompt.ID, Prompt: in.Prompt.Text, Answer: in.Prompt.Answer,
		Source: in.Prompt.Source, Response: in.Text, Finish: string(in.Finish), Length: in.Length}
}

// outcomeOf returns the outcome of a checked answer. who names the scorer in errors. An error that the scorer
// reports is final, because the scorer could have retried itself.
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

// seconds returns s seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

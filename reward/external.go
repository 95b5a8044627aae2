package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/reward/queue"
	"github.com/easyrl/easyrl/rollout"
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

// request is a response to score: what a program reads, one JSON object a line,
// and what a service gets in a list.
type request struct {
	ID       int64           `json:"id"` // to be repeated in the answer
	PromptID string          `json:"prompt_id"`
	Prompt   string          `json:"prompt"`
	Answer   json.RawMessage `json:"answer"`
	Source   string          `json:"source"`
	Response string          `json:"response"`
	Finish   rollout.Finish  `json:"finish"`
	Length   int             `json:"length"`
}

func newRequest(id int64, in Input) request {
	return request{ID: id, PromptID: in.Prompt.ID, Prompt: in.Prompt.Text, Answer: in.Prompt.Answer, Source: in.Prompt.Source,
		Response: in.Text, Finish: in.Finish, Length: in.Length}
}

// answer is what comes back for each request:
// {"id":1,"score":0.5,"right":true,"parts":{"name":1}}, where "right" and "parts"
// may be left out, or {"id":1,"error":"why not"}.
type answer struct {
	ID    *int64             `json:"id"`
	Score *float64           `json:"score"`
	Right *bool              `json:"right"` // nil where the score alone says it
	Parts map[string]float64 `json:"parts"`
	Error string             `json:"error"`
}

// check expects a score, or an error, of request id.
func (a *answer) check(id int64) error {
	switch {
	case a.ID == nil:
		return fmt.Errorf("no \"id\", expected %d", id)
	case *a.ID != id:
		return fmt.Errorf("\"id\" is %d, expected %d", *a.ID, id)
	case a.Error == "" && a.Score == nil:
		return errors.New(`neither "score" nor "error"`)
	}
	return nil
}

// outcome of an answer that was checked. An error that is reported is final: who
// reports it knows what else to try.
func (a *answer) outcome(who string) outcome {
	if a.Error != "" {
		return outcome{Err: fmt.Errorf("%s reports: %s", who, program.OneLine([]byte(a.Error)))}
	}
	score := Score{Value: *a.Score, Parts: a.Parts}
	if a.Right != nil {
		score.Verdict = verdict(*a.Right)
	}
	return outcome{Value: score}
}

func encode(r any) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return line.Bytes(), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

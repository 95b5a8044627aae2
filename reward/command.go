package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/rollout"
)

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
		return outcome{err: fmt.Errorf("%s reports: %s", who, program.OneLine([]byte(a.Error)))}
	}
	score := Score{Value: *a.Score, Parts: a.Parts}
	if a.Right != nil {
		score.Verdict = verdict(*a.Right)
	}
	return outcome{score: score}
}

// command scores with processes of an external program. A process starts when it
// is first needed, reads up to batch requests at once, one JSON object a line,
// and answers them in turn, one a line. It is killed with its children when it
// misses a deadline, breaks the protocol or has too much memory; another takes
// its place.
type command struct {
	*queue
	argv    []string
	timeout func(batch []Input) time.Duration // for each answer
	memory  *program.Guard
}

func newCommand(t *Term) (*command, error) {
	if _, err := exec.LookPath(t.Command[0]); err != nil {
		return nil, fmt.Errorf("new reward: command: %w", err)
	}
	c := &command{argv: t.Command, timeout: func([]Input) time.Duration { return seconds(t.Timeout) }, memory: program.NewGuard(int64(t.MemoryGiB * (1 << 30)))}
	c.queue = newQueue("reward command "+t.Command[0], t.Processes, t.Batch, t.Retries, nil, func() asker { return &seat{command: c} })
	return c, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Close ends all processes and refuses what still waits for one.
func (c *command) Close() error {
	err := c.queue.Close()
	c.memory.Close()
	return err
}

// seat is the place of one process, which is nil where none runs.
type seat struct {
	*command
	process *program.Process
	asked   int64 // requests so far
}

// ask gives the process a batch. What came before a failure is answered; the
// request that waited for its answer is to blame, those behind it were not asked.
func (s *seat) ask(ctx context.Context, batch []Input) []outcome {
	reused := s.process != nil
	answers, err := s.attempt(ctx, batch)
	if reused && len(answers) == 0 && errors.Is(err, program.ErrEnded) && ctx.Err() == nil {
		answers, err = s.attempt(ctx, batch) // it had ended since its last answer
	}
	outcomes := make([]outcome, len(batch))
	for i := range outcomes {
		switch {
		case i < len(answers):
			outcomes[i] = answers[i].outcome("program")
		case i == len(answers):
			outcomes[i] = outcome{err: err, again: true}
		default:
			outcomes[i] = outcome{err: errUnasked}
		}
	}
	return outcomes
}

// attempt asks the process, or a new one. With an error there is none after it.
func (s *seat) attempt(ctx context.Context, batch []Input) (answers []answer, err error) {
	if s.process == nil {
		s.asked = 0
		if s.process, err = program.Start(s.argv, s.memory); err != nil {
			return nil, err
		}
	}
	var lines []byte
	first := s.asked + 1
	for _, in := range batch {
		s.asked++
		line, err := encode(newRequest(s.asked, in))
		if err != nil {
			return nil, err
		}
		lines = append(lines, line...)
	}
	_, err = s.process.Ask(ctx, lines, len(batch), s.timeout(batch), func(i int, line []byte) error {
		a, err := decode(line, first+int64(i))
		if err == nil {
			answers = append(answers, a)
		}
		return err
	})
	if err != nil {
		s.process = nil
	}
	return answers, err
}

func (s *seat) close() {
	if s.process != nil {
		s.process.Kill()
	}
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

// decode reads the program's answer to request id.
func decode(line []byte, id int64) (answer, error) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, fmt.Errorf("answer %q: expected a JSON object a line on standard output: %w", program.OneLine(line), err)
	}
	if err := a.check(id); err != nil {
		return answer{}, fmt.Errorf("answer %q: %w", program.OneLine(line), err)
	}
	return a, nil
}

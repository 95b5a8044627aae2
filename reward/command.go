package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/easyrl/easyrl/rollout"
)

// ErrTimeout is wrapped by the error of a score that took too long.
var ErrTimeout = errors.New("no answer in time")

// errClosed is returned for a Score after Close.
var errClosed = errors.New("reward is closed")

// request is what the program reads, one JSON object a line.
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

// answer is what it writes, one JSON object a line, to each request in turn:
// {"id":1,"score":0.5,"parts":{"name":1}} or {"id":1,"error":"why not"}.
type answer struct {
	ID    *int64             `json:"id"`
	Score *float64           `json:"score"`
	Parts map[string]float64 `json:"parts"`
	Error string             `json:"error"`
}

// command scores with processes of an external program. A process starts when
// it is first needed, scores one response at a time, and is killed with its
// children when it misses its deadline or breaks the protocol; another takes
// its place.
type command struct {
	argv    []string
	timeout time.Duration
	// slots has one entry for each process that may run: an idle one, or nil
	// where it has to be started. Who holds an entry owns its process.
	slots  chan *process
	closed context.Context // done once Close is called
	cancel context.CancelFunc
	once   sync.Once
}

func newCommand(argv []string, processes int, timeout time.Duration) (*command, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, fmt.Errorf("new reward: command: %w", err)
	}
	c := &command{argv: argv, timeout: timeout, slots: make(chan *process, processes)}
	c.closed, c.cancel = context.WithCancel(context.Background())
	for range processes {
		c.slots <- nil
	}
	return c, nil
}

// Score waits for a process; the time for its answer counts from then on.
func (c *command) Score(ctx context.Context, in Input) (Score, error) {
	score, err := c.score(ctx, in)
	if err != nil {
		return Score{}, fmt.Errorf("reward command %s: prompt %s: %w", c.argv[0], in.Prompt.ID, err)
	}
	return score, nil
}

func (c *command) score(ctx context.Context, in Input) (Score, error) {
	if c.closed.Err() != nil {
		return Score{}, errClosed
	}
	var p *process
	select {
	case p = <-c.slots:
	case <-ctx.Done():
		return Score{}, ctx.Err()
	case <-c.closed.Done():
		return Score{}, errClosed
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("%w: %v", ErrTimeout, c.timeout))
	defer cancel()
	stop := context.AfterFunc(c.closed, cancel)
	defer stop()

	reused := p != nil
	score, p, err := c.attempt(ctx, p, in)
	if reused && errors.Is(err, errEnded) && ctx.Err() == nil {
		score, p, err = c.attempt(ctx, p, in) // it had ended since its last answer
	}
	c.slots <- p
	if err != nil && c.closed.Err() != nil {
		return Score{}, errClosed
	}
	return score, err
}

// attempt asks p, or a new process where p is nil, and returns the process that
// may be asked again.
func (c *command) attempt(ctx context.Context, p *process, in Input) (Score, *process, error) {
	if err := ctx.Err(); err != nil {
		return Score{}, p, context.Cause(ctx)
	}
	if p == nil {
		var err error
		if p, err = start(c.argv); err != nil {
			return Score{}, nil, err
		}
	}
	p.asked++
	line, err := encode(request{
		ID: p.asked, PromptID: in.Prompt.ID, Prompt: in.Prompt.Text, Answer: in.Prompt.Answer, Source: in.Prompt.Source,
		Response: in.Text, Finish: in.Finish, Length: in.Length,
	})
	if err != nil {
		return Score{}, p, err
	}
	reply, err := p.ask(ctx, line)
	if err != nil {
		return Score{}, nil, err
	}
	a, err := decode(reply, p.asked)
	if err != nil {
		p.kill()
		return Score{}, nil, err
	}
	if a.Error != "" {
		return Score{}, p, fmt.Errorf("program reports: %s", oneLine([]byte(a.Error)))
	}
	return Score{Value: *a.Score, Parts: a.Parts}, p, nil
}

// Retries is how often a response was asked for again.
func (c *command) Retries() int64 { return 0 }

// Close ends all processes and refuses what still waits for one.
func (c *command) Close() error {
	c.once.Do(func() {
		c.cancel()
		for range cap(c.slots) {
			if p := <-c.slots; p != nil {
				p.kill()
			}
		}
	})
	return nil
}

func encode(r request) ([]byte, error) {
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
		return answer{}, fmt.Errorf("answer %q: expected a JSON object a line on standard output: %w", oneLine(line), err)
	}
	switch {
	case a.ID == nil:
		return answer{}, fmt.Errorf("answer %q: no \"id\", expected %d", oneLine(line), id)
	case *a.ID != id:
		return answer{}, fmt.Errorf("answer %q: \"id\" is %d, expected %d", oneLine(line), *a.ID, id)
	case a.Error == "" && a.Score == nil:
		return answer{}, fmt.Errorf("answer %q: neither \"score\" nor \"error\"", oneLine(line))
	}
	return a, nil
}

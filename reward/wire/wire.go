// Package wire defines the JSON that a run exchanges with the programs and services
// that score its responses.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/reward/program"
)

// Request is a response to score. Programs read one JSON object per line; services get
// a list.
type Request struct {
	ID       int64           `json:"id"` // repeated in the answer
	PromptID string          `json:"prompt_id"`
	Prompt   string          `json:"prompt"`
	Answer   json.RawMessage `json:"answer"`
	Source   string          `json:"source"`
	Response string          `json:"response"`
	Finish   string          `json:"finish"`
	Length   int             `json:"length"`
}

// Answer is the reply to a request:
// {"id":1,"score":0.5,"right":true,"parts":{"name":1}}, where "right" and "parts" are
// optional, or {"id":1,"error":"why not"}.
type Answer struct {
	ID    *int64             `json:"id"`
	Score *float64           `json:"score"`
	Right *bool              `json:"right"` // nil if the score decides
	Parts map[string]float64 `json:"parts"`
	Error string             `json:"error"`
}

// Check returns an error unless a has request id and a score or an error.
func (a *Answer) Check(id int64) error {
	switch {
	case a.ID == nil:
		return fmt.Errorf("\"id\" is missing, expected %d", id)
	case *a.ID != id:
		return fmt.Errorf("\"id\" is %d, expected %d", *a.ID, id)
	case a.Error == "" && a.Score == nil:
		return errors.New(`neither "score" nor "error"`)
	}
	return nil
}

// Line encodes a request to a program.
func Line(r Request) ([]byte, error) { return encode(r) }

// List encodes the requests of one call to a service.
func List(items []Request) ([]byte, error) {
	return encode(struct {
		Items []Request `json:"items"`
	}{items})
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

// ReadLine reads a program's answer to request id.
func ReadLine(line []byte, id int64) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return Answer{}, fmt.Errorf("reply %q: expected one JSON object per line on standard output: %w",
			program.OneLine(line), err)
	}
	if err := a.Check(id); err != nil {
		return Answer{}, fmt.Errorf("reply %q: %w", program.OneLine(line), err)
	}
	return a, nil
}

// ReadList reads a service's answers to n items. The caller checks each one.
func ReadList(text []byte, n int) ([]Answer, error) {
	const shape = `expected {"scores":[{"id":1,"score":…},…]}`
	var reply struct {
		Scores []Answer `json:"scores"`
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, fmt.Errorf("reply %q: %s: %w", program.OneLine(text), shape, err)
	}
	if len(reply.Scores) != n {
		return nil, fmt.Errorf("reply %q has %d scores, expected %d: %s", program.OneLine(text),
			len(reply.Scores), n, shape)
	}
	return reply.Scores, nil
}

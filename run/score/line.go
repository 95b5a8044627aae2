package score

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/jsonlines"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// row is a line of input: one response, or a prompt with several.
type row struct {
	ID       json.RawMessage `json:"id"` // a string or an integer; may be absent
	PromptID string          `json:"prompt_id"`
	Prompt   json.RawMessage `json:"prompt"`   // text or a list of messages
	Question string          `json:"question"` // of a chat whose prompt is rendered
	Answer   json.RawMessage `json:"answer"`   // any value; may be absent
	Source   string          `json:"source"`

	Response *string        `json:"response"`
	Finish   rollout.Finish `json:"finish"` // default "stop"
	Length   int            `json:"length"` // in tokens

	Responses []struct {
		Text   *string            `json:"text"`
		Finish rollout.Finish     `json:"finish"`
		Spans  rollout.Trajectory `json:"spans"`
		IDs    []int32            `json:"ids"`    // instead of Spans
		Tokens int                `json:"tokens"` // instead of IDs
	} `json:"responses"`

	Settings json.RawMessage `json:"easyrl_eval"` // first line of a record, which has no responses
}

// response is a response to score.
type response struct {
	place string // file:line
	id    any    // a string, or the line's own json.RawMessage
	input reward.Input
}

const expected = `{"prompt":…,"answer":…,"response":…} or a line of a run's rollouts`

// parse returns the responses of a line at place.
func parse(line jsonlines.Line, place string) ([]response, error) {
	if line.Err != nil {
		return nil, line.Err
	}
	var l row
	if err := json.Unmarshal(line.Text, &l); err != nil {
		return nil, line.Fault(err, expected)
	}
	switch {
	case l.Settings != nil:
		return nil, nil
	case l.Response == nil && len(l.Responses) == 0:
		return nil, fmt.Errorf(`missing "response", expected %s`, expected)
	case l.Response != nil && len(l.Responses) > 0:
		return nil, errors.New(`found "response" and "responses", expected one of them`)
	}
	id, p, err := l.prompt(place)
	if err != nil {
		return nil, err
	}
	if l.Response != nil {
		in, err := input(p, l.Response, l.Finish, l.Length)
		return []response{{place, id, in}}, err
	}
	var all []response
	for i, r := range l.Responses {
		in, err := input(p, r.Text, r.Finish, cmp.Or(r.Spans.Count(rollout.IsPolicy), len(r.IDs), r.Tokens))
		if err != nil {
			return nil, fmt.Errorf("responses[%d]: %w", i, err)
		}
		all = append(all, response{place, fmt.Sprintf("%s/%d", p.ID, i+1), in})
	}
	return all, nil
}

// prompt returns the prompt and the line's id, which is place if the line has none.
func (l *row) prompt(place string) (id any, p *rollout.Prompt, err error) {
	p = &rollout.Prompt{ID: cmp.Or(l.PromptID, place), Messages: rollout.Chat(l.Question), Source: l.Source}
	id = p.ID
	if given(l.ID) {
		id = l.ID
		if p.ID, err = data.ID(l.ID); err != nil {
			return nil, nil, err
		}
	}
	if given(l.Answer) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, l.Answer); err != nil {
			return nil, nil, fmt.Errorf("answer: %w", err)
		}
		p.Answer = compact.Bytes()
	}
	switch {
	case !given(l.Prompt):
		return nil, nil, fmt.Errorf(`missing "prompt", expected %s`, expected)
	case l.Prompt[0] == '"':
		return id, p, json.Unmarshal(l.Prompt, &p.Text)
	}
	if p.Messages, err = data.Messages(l.Prompt); err != nil {
		return nil, nil, fmt.Errorf("prompt: %w", err)
	}
	var turns []string
	for _, m := range p.Messages {
		turns = append(turns, m.Content)
	}
	p.Text = strings.Join(turns, "\n\n")
	return id, p, nil
}

// given reports whether a field is present and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// input checks a response.
func input(p *rollout.Prompt, text *string, finish rollout.Finish, length int) (in reward.Input, err error) {
	finish = cmp.Or(finish, rollout.Stop)
	switch {
	case text == nil:
		return in, errors.New(`missing "text"`)
	case finish != rollout.Stop && finish != rollout.Length:
		return in, fmt.Errorf("finish is %q, expected %q or %q", finish, rollout.Stop, rollout.Length)
	case length < 0:
		return in, fmt.Errorf("length is %d, expected 0 or more", length)
	}
	return reward.Input{Prompt: p, Text: *text, Finish: finish, Length: length}, nil
}

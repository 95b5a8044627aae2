package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// question is a request whose answer depends only on the weights.
type question struct {
	name   string
	path   string
	fields string    // of the body, without stream
	want   [2]string // answers by weights
}

// body returns the request body, streamed or not.
func (q *question) body(stream bool) string {
	return fmt.Sprintf(`{%s,"stream":%t}`, q.fields, stream)
}

// questions returns the questions of the crowd: short ones, long ones, several
// responses, and conversations.
func questions() []*question {
	var list []*question
	for i := range 8 {
		add := func(name, path, format string, args ...any) {
			fields := fmt.Sprintf(format, args...) + fmt.Sprintf(`,"seed":%d,"return_token_ids":true`, 1000+i)
			list = append(list, &question{name: fmt.Sprintf("%s %d", name, i), path: path, fields: fields})
		}
		add("short", "/v1/completions", `"prompt":[%d,8,9],"max_tokens":%d`, 7+i, 4+i)
		add("several", "/v1/completions", `"prompt":[[10,%d],[11,12,13]],"n":3,"max_tokens":12,"logprobs":2`, 7+i)
		add("long", "/v1/completions", `"prompt":[%s10],"max_tokens":%d,"ignore_eos":true`, strings.Repeat("9,", 40*i), 100+i)
		add("chat", "/v1/chat/completions", `"messages":[{"role":"user","content":"abc %d"}],"max_tokens":16,"logprobs":true,"top_logprobs":1`, i)
	}
	return list
}

// answer is the response to a question.
type answer struct {
	version int64
	text    string // all choices with their tokens and finish reasons
}

// refusal is a response that gives a reason instead of an answer.
type refusal struct {
	status int
	kind   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.status, r.kind) }

// event is an answer or a part of one.
type event struct {
	Version int64 `json:"weight_version"`
	Choices []struct {
		Index   int
		Text    string
		Message struct{ Content string }
		Delta   struct{ Content string }
		IDs     []int32 `json:"token_ids"`
		Finish  string  `json:"finish_reason"`
	}
	Error *struct{ Type, Message string }
}

// choice accumulates the parts of a choice.
type choice struct {
	Text, Finish string
	IDs          []int32
}

// read parses any kind of response. It returns a *refusal for a refusal in OpenAI's
// format.
func read(res *http.Response) (answer, error) {
	var choices []choice
	var a answer
	take := func(data []byte) error {
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("status %d, not JSON: %.200q", res.StatusCode, data)
		}
		if e.Error != nil {
			return refused(res, e.Error.Type, e.Error.Message)
		}
		a.version = e.Version
		for _, c := range e.Choices {
			if c.Index < 0 || c.Index > 1000 {
				return fmt.Errorf("choice %d, expected 0 to 1000", c.Index)
			}
			for len(choices) <= c.Index {
				choices = append(choices, choice{})
			}
			to := &choices[c.Index]
			to.Text += c.Text + c.Message.Content + c.Delta.Content
			to.IDs, to.Finish = append(to.IDs, c.IDs...), to.Finish+c.Finish
		}
		return nil
	}
	if err := each(res, take); err != nil {
		return a, err
	}
	if res.StatusCode != http.StatusOK || len(choices) == 0 {
		return a, fmt.Errorf("status %d with %d choices", res.StatusCode, len(choices))
	}
	a.text = fmt.Sprintf("%+q", choices)
	return a, nil
}

// refused checks that a refusal is complete.
func refused(res *http.Response, kind, message string) error {
	if kind == "" || message == "" {
		return fmt.Errorf("status %d, error has no type or message", res.StatusCode)
	}
	retry := res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable
	if retry && res.Header.Get("Retry-After") == "" {
		return fmt.Errorf("status %d without Retry-After", res.StatusCode)
	}
	return &refusal{res.StatusCode, kind}
}

// each calls take with the JSON of an answer or of each event of a stream.
func each(res *http.Response, take func([]byte) error) error {
	if res.Header.Get("Content-Type") != "text/event-stream" {
		data, err := io.ReadAll(res.Body)
		if err != nil {
			return fmt.Errorf("status %d, read body: %w", res.StatusCode, err)
		}
		return take(data)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	ended := false
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case len(lines.Bytes()) == 0:
		case !ok || ended:
			return fmt.Errorf("unexpected stream line %.100q", lines.Text())
		case string(data) == "[DONE]":
			ended = true
		default:
			if err := take(data); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	if !ended {
		return errors.New("stream has no end")
	}
	return nil
}

// ask asks a question on a separate connection, without streaming.
func (s *server) ask(ctx context.Context, q *question) (answer, error) {
	req, err := s.request(ctx, http.MethodPost, q.path, strings.NewReader(q.body(false)))
	if err != nil {
		return answer{}, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close() //nolint:errcheck // already read
	a, err := read(res)
	if err != nil {
		return a, fmt.Errorf("%s: %w", q.name, err)
	}
	return a, nil
}

func (s *server) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body)
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	return req, nil
}

// weightsOf returns the index of a version's weights, which alternate with updates.
func (s *server) weightsOf(version int64) int {
	if len(s.weights) == 0 {
		return 0
	}
	return int(version & 1)
}

// learn records the answer to each question under both weights. It skips conversations
// on a server without a chat template.
func (l *load) learn(ctx context.Context) error {
	l.questions = questions()
	for which := range max(1, len(l.server.weights)) {
		if which > 0 {
			if err := l.server.put(ctx, int64(which), "", l.server.weights[which]); err != nil {
				return err
			}
			l.version = int64(which)
		}
		var kept []*question
		for _, q := range l.questions {
			a, err := l.server.ask(ctx, q)
			var no *refusal
			if errors.As(err, &no) && no.status == http.StatusBadRequest && len(l.server.weights) == 0 {
				fmt.Printf("skipped: %v\n", err)
				continue
			}
			if err != nil {
				return err
			}
			if len(l.server.weights) > 0 && a.version != int64(which) {
				return fmt.Errorf("%s: version %d, expected %d", q.name, a.version, which)
			}
			q.want[which] = a.text
			kept = append(kept, q)
		}
		l.questions = kept
	}
	if len(l.questions) == 0 {
		return errors.New("the server rejected every question")
	}
	if len(l.server.weights) > 0 && !slices.ContainsFunc(l.questions, func(q *question) bool { return q.want[0] != q.want[1] }) {
		return errors.New("both weights give the same responses")
	}
	return nil
}

package api

import (
	"bufio"
	"encoding/json"

	"github.com/easyrl/easyrl/inference"
)

// Choices writes an answer as lines: one with each choice when it has ended, and a last one
// with the usage and no choices. Each line is an answer. If the request fails after the
// first line, the last one has the error and its status instead.
type Choices struct {
	*Writer
	out  *bufio.Writer
	sent []bool
}

// Ended is a choice that has ended.
type Ended struct {
	Index int
	inference.Completion
}

// NewChoices returns the lines of w's job, which it writes to out and never flushes.
func (w *Writer) NewChoices(out *bufio.Writer) *Choices {
	return &Choices{Writer: w, out: out, sent: make([]bool, len(w.job.Prompts)*w.job.N)}
}

// Part sends a choice, once.
func (o *Choices) Part(e Ended) {
	if o.sent[e.Index] {
		return
	}
	o.sent[e.Index] = true
	a := o.frame([]inference.Completion{e.Completion})
	a.Usage = nil
	a.Choices = append(a.Choices, o.choice(e.Index, &e.Completion))
	o.line(a)
}

// End sends the choices that are left and the last line, or the failure that ended the request.
func (o *Choices) End(out []inference.Completion, f *Failure) {
	if f != nil {
		body := f.body()
		body.Status = f.Status
		o.line(body)
		return
	}
	last := o.frame(out)
	for i := range out {
		o.Part(Ended{i, out[i]})
		out[i] = inference.Completion{} // its JSON takes many times the memory of its numbers
	}
	o.line(last)
}

// line writes one line. out keeps any error.
func (o *Choices) line(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		data = []byte(NotJSON)
	}
	_, _ = o.out.Write(append(data, '\n'))
}

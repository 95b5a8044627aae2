package api

import (
	"bufio"
	"encoding/json"

	"github.com/easyrl/easyrl/inference"
)

// Choices writes an answer as lines of JSON: one line per choice, as soon as the choice is
// complete, and a last line with the usage and no choices. Each line has the form of an answer. If
// the request fails after the first line, the last line has the error and its status instead.
type Choices struct {
	*Writer
	out  *bufio.Writer
	sent []bool // per choice
}

// Ended is a complete choice.
type Ended struct {
	Index int
	inference.Completion
}

// NewChoices returns a Choices that writes the answer to w's job to out and never flushes out.
func (w *Writer) NewChoices(out *bufio.Writer) *Choices {
	return &Choices{Writer: w, out: out, sent: make([]bool, len(w.job.Prompts)*w.job.N)}
}

// Part sends a choice unless it has been sent.
func (o *Choices) Part(e Ended) {
	if o.sent[e.Index] {
		return
	}
	o.sent[e.Index] = true
	a := o.frame([]inference.Completion{e.Completion})
	a.Usage = nil
	a.Choices = append(a.Choices, o.choice(e.Index, &e.Completion))
	o.writeLine(a)
}

// End sends the remaining choices and the last line, or the failure f that ended the request. It
// clears the elements of out.
func (o *Choices) End(out []inference.Completion, f *Failure) {
	if f != nil {
		body := f.body()
		body.Status = f.Status
		o.writeLine(body)
		return
	}
	last := o.frame(out) // before out is cleared
	for i := range out {
		o.Part(Ended{i, out[i]})
		out[i] = inference.Completion{} // its JSON takes many times the memory of its numbers
	}
	o.writeLine(last)
}

// writeLine writes value as one line. out keeps any error.
func (o *Choices) writeLine(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		data = []byte(NotJSON)
	}
	_, _ = o.out.Write(append(data, '\n'))
}

package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// encode returns the trace file with one event per line.
func encode(rows []row, flows [][]pass, other traceOrigin) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	b.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	var err error
	separator := ""
	events(rows, flows, func(e Event) {
		b.WriteString(separator)
		err = errors.Join(err, lines.Encode(e))
		separator = ","
	})
	b.WriteString(`],"otherData":`)
	err = errors.Join(err, lines.Encode(other))
	b.WriteString("}\n")
	return b.Bytes(), err
}

// events passes the events of each row to add together, with enclosing spans before the spans
// in them. The flows follow all rows, each from start to end, because viewers process
// simultaneous events in file order.
func events(rows []row, flows [][]pass, add func(Event)) {
	add(about("process_name", process, 0, Args{Name: "easyrl"}))
	for _, r := range rows {
		if r.pid == r.tid { // first row of a lanes track
			add(about("process_name", r.pid, 0, Args{Name: r.track.name}))
			add(about("process_sort_index", r.pid, 0, Args{Sort: r.pid}))
		}
		add(about("thread_name", r.pid, r.tid, Args{Name: r.name, Track: r.track.name, Lanes: r.track.lanes}))
		add(about("thread_sort_index", r.pid, r.tid, Args{Sort: r.tid}))
		for _, p := range r.spans {
			add(p.event())
		}
	}
	for i, flow := range flows {
		for k, p := range flow {
			e := Event{Name: "group", Category: "group", Phase: "t", ID: i + 1, Time: microseconds(p.begin),
				PID: p.pid, TID: p.tid}
			switch k {
			case 0:
				e.Phase = "s"
			case len(flow) - 1:
				e.Phase, e.Bind = "f", "e" // bind to the enclosing span, not the next one
			}
			add(e)
		}
	}
}

// about returns an event about a row, or with tid 0 about a process.
func about(event string, pid, tid int, args Args) Event {
	return Event{Name: event, Phase: "M", PID: pid, TID: tid, Args: args}
}

// event returns the event of a span.
func (p *placed) event() Event {
	e := Event{Name: p.name, Phase: "X", Time: microseconds(p.begin), Dur: microseconds(p.end - p.begin),
		PID: p.pid, TID: p.tid, Args: Args{Tokens: p.tokens, Prompt: p.prompt}}
	if p.step != NoStep {
		e.Args.Step = &p.step
	}
	return e
}

// quotedLen returns an upper bound on the bytes of s within a JSON string.
func quotedLen(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return 6 * len(s)
		}
	}
	return len(s)
}

// microseconds returns d in microseconds. d is a multiple of a microsecond.
func microseconds(d time.Duration) float64 { return float64(d / time.Microsecond) }

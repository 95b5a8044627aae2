package trace

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// encode returns the trace file with one event per line. The events of a row are
// together, with enclosing spans before the spans in them. The flows follow all rows,
// each from start to end, because viewers process simultaneous events in file order.
func encode(rows []row, flows [][]pass, other traceOrigin) ([]byte, error) {
	b := encoder{out: []byte(`{"displayTimeUnit":"ms","traceEvents":[` + "\n")}
	b.name("process_name", process, 0, "easyrl", "")
	for i := range rows {
		b.row(&rows[i])
	}
	for i, flow := range flows {
		b.flow(i+1, flow)
	}
	origin, err := json.Marshal(other)
	if err != nil {
		return nil, err
	}
	b.out = b.out[:len(b.out)-2] // drop the last comma
	return fmt.Appendf(b.out, "\n],\"otherData\":%s}\n", origin), nil
}

// encoder writes events as encoding/json would, ten times as fast.
type encoder struct {
	out []byte
}

func (b *encoder) row(r *row) {
	if r.pid == r.tid { // first row of a lanes track
		b.name("process_name", r.pid, 0, r.track.name, "")
		b.name("process_sort_index", r.pid, 0, "", fmt.Sprintf(`"sort_index":%d`, r.pid))
	}
	b.name("thread_name", r.pid, r.tid, r.name, fmt.Sprintf(`"track":%s,"lanes":%t`, appendString(nil, r.track.name), r.track.lanes))
	b.name("thread_sort_index", r.pid, r.tid, "", fmt.Sprintf(`"sort_index":%d`, r.tid))
	for _, p := range r.spans {
		b.span(p)
	}
}

// flow writes the start, steps and end of a flow, each at the beginning of its span.
func (b *encoder) flow(id int, spans []pass) {
	for i, p := range spans {
		phase, more := "t", ""
		switch i {
		case 0:
			phase = "s"
		case len(spans) - 1:
			phase, more = "f", `,"bp":"e"` // bind to the enclosing span, not the next one
		}
		b.text(`{"name":"group","cat":"group","ph":"`).text(phase).text(`","id":`).number(id)
		b.text(`,"ts":`).number(microseconds(p.begin)).place(p.pid, p.tid)
		b.text(more).text("},\n")
	}
}

// name writes a metadata event about a row, or with tid 0 about a process. Its
// arguments are a name, if not empty, and more.
func (b *encoder) name(event string, pid, tid int, name, more string) {
	b.text(`{"name":"`).text(event).text(`","ph":"M","ts":0`).place(pid, tid)
	b.text(`,"args":{`)
	if name != "" {
		b.text(`"name":`).quoted(name)
		if more != "" {
			b.text(",")
		}
	}
	b.text(more).text("}},\n")
}

func (b *encoder) span(p *placed) {
	b.text(`{"name":`).quoted(p.name).text(`,"ph":"X","ts":`).number(microseconds(p.begin))
	b.text(`,"dur":`).number(microseconds(p.end - p.begin))
	b.place(p.pid, p.tid)
	before := `,"args":{`
	arg := func(name string) *encoder {
		b.text(before).text(`"`).text(name).text(`":`)
		before = ","
		return b
	}
	if p.step != NoStep {
		arg("step").number(int(p.step))
	}
	if p.tokens > 0 {
		arg("tokens").number(p.tokens)
	}
	if p.prompt != "" {
		arg("prompt").quoted(p.prompt)
	}
	if before == "," {
		b.text("}")
	}
	b.text("},\n")
}

func (b *encoder) text(s string) *encoder {
	b.out = append(b.out, s...)
	return b
}

func (b *encoder) number(n int) *encoder {
	b.out = strconv.AppendInt(b.out, int64(n), 10)
	return b
}

func (b *encoder) quoted(s string) *encoder {
	b.out = appendString(b.out, s)
	return b
}

func (b *encoder) place(pid, tid int) { b.text(`,"pid":`).number(pid).text(`,"tid":`).number(tid) }

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	if !plain(s) {
		quoted, _ := json.Marshal(s) // a string always marshals
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain reports whether s needs no escaping in a JSON string.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// quotedLen returns an upper bound on the bytes of s within a JSON string.
func quotedLen(s string) int {
	if plain(s) {
		return len(s)
	}
	return 6 * len(s)
}

func microseconds(d time.Duration) int { return int(d / time.Microsecond) }

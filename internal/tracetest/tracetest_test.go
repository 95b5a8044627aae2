package tracetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	rowA = `{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":2,"args":{"name":"a","track":"a"}}`
	rowB = `{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":3,"args":{"name":"b (2)","track":"b"}}`
)

func read(events ...string) (*Trace, error) {
	return Read([]byte(`{"displayTimeUnit":"ms","traceEvents":[` + strings.Join(events, ",") +
		`],"otherData":{"dropped":3}}`))
}

func TestRead(t *testing.T) {
	t.Parallel()
	tr, err := read(rowA, rowB,
		`{"name":"out","ph":"X","ts":10,"dur":90,"pid":1,"tid":2}`,
		`{"name":"in","ph":"X","ts":10,"dur":90,"pid":1,"tid":2,"args":{"step":1}}`,
		`{"name":"g","cat":"g","ph":"s","id":7,"ts":10,"pid":1,"tid":2}`,
		`{"name":"next","ph":"X","ts":100,"dur":0,"pid":1,"tid":2}`,
		`{"name":"end","ph":"X","ts":50,"dur":1,"pid":1,"tid":3}`,
		`{"name":"g","cat":"g","ph":"f","id":7,"ts":50,"pid":1,"tid":3,"bp":"e"}`)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b (2)"}, tr.Rows)
	require.Equal(t, 3, tr.Dropped)
	in, end := Slice{"a", "a", "in", 10, 100, 1, map[string]any{"step": 1.}}, Slice{"b (2)", "b", "end", 50, 51, 0, nil}
	require.Equal(t, []Slice{{"a", "a", "out", 10, 100, 0, nil}, in, end, {"a", "a", "next", 100, 100, 0, nil}},
		tr.Slices)
	require.Equal(t, map[int][]Slice{7: {in, end}}, tr.Flows)
	require.Equal(t, []Slice{end}, tr.Named("end"))
}

func TestFaults(t *testing.T) {
	t.Parallel()
	span := `{"name":"x","ph":"X","ts":10,"dur":10,"pid":1,"tid":2}`
	start := `{"name":"g","cat":"g","ph":"s","id":7,"ts":10,"pid":1,"tid":2}`
	end := `{"name":"g","cat":"g","ph":"f","id":7,"ts":11,"pid":1,"tid":2,"bp":"e"}`
	for want, events := range map[string][]string{
		"no name":                               {rowA, `{"ph":"X","ts":1,"dur":1,"pid":1,"tid":2}`},
		"no pid or tid":                         {rowA, `{"name":"x","ph":"X","ts":1,"dur":1,"pid":1}`},
		"ts is no number of whole":              {rowA, `{"name":"x","ph":"X","ts":1.5,"dur":1,"pid":1,"tid":2}`},
		"dur is no number of whole":             {rowA, `{"name":"x","ph":"X","ts":1,"dur":-1,"pid":1,"tid":2}`},
		`phase "Q"`:                             {rowA, `{"name":"x","ph":"Q","ts":1,"pid":1,"tid":2}`},
		"neither a name nor":                    {`{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":2}`},
		"row 2 has two names":                   {rowA, rowA},
		"row 2 of process 1 has no name":        {span},
		"x from 15 to 25 overlaps x, which":     {rowA, span, `{"name":"x","ph":"X","ts":15,"dur":10,"pid":1,"tid":2}`},
		"x begins at 10, where a flow passes":   {rowA, span, start, span, end},
		"flow 7 has no end":                     {rowA, span, start},
		"flow 7 starts twice":                   {rowA, span, start, start, end},
		"phase f, but it is not under way":      {rowA, span, end},
		"flow 7 at 10: there is no span on a":   {rowA, start},
		"flow without id or cat":                {rowA, span, `{"name":"g","ph":"s","ts":10,"pid":1,"tid":2}`},
		`phase f with bp "", expected e`:        {rowA, span, start, strings.ReplaceAll(end, `,"bp":"e"`, "")},
		"flow 7 at 11: phase f, but it is not ": {rowA, span, start, end, end},
	} {
		_, err := read(events...)
		require.ErrorContains(t, err, want)
	}
	_, err := Read([]byte(`{}`))
	require.ErrorContains(t, err, "displayTimeUnit")
	_, err = Read([]byte(`[`))
	require.Error(t, err)
}

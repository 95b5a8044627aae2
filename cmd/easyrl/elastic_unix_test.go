//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

// A run starts with one instance, gets three more in step 4 and loses two in step 7. It
// ends in the same weights as a run with constant instances, and its records show which
// instances served when.
func TestElastic(t *testing.T) {
	t.Parallel()
	const joinIn, leaveIn, steps = 4, 7, 9
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(steps)...)
	_, proxies := startServers(t, dir, 4)
	joined, left := newGate(joinIn), newGate(leaveIn)
	meetings := map[int64]*meeting{} // by step; none when instances join or leave
	for step := 1; step <= steps; step++ {
		if step != joinIn && step != leaveIn {
			meetings[int64(step)] = newMeeting(servedIn(step, joinIn, leaveIn))
		}
	}
	for i, p := range proxies {
		p.on(func(x *exchange) {
			if i == 0 {
				joined.hold(x)
				left.hold(x)
			}
			if m := meetings[x.version]; m != nil && !x.update {
				m.attend(i, x)
			}
			x.pass()
		})
	}
	patient := fleet.DefaultConfig()
	patient.Patience = patient.CallTimeout // requests are held as long as the test takes
	tr := startTraining(t, dir, "elastic", patient, append(fleetSettings(steps),
		"inference.kind=easyrl", "control.listen=127.0.0.1:0", endpoints(proxies[0]))...)
	control := tr.control(t)
	fleet := func(action string, which ...int) {
		for _, i := range which {
			code, _, errs := command(t, "fleet", action, proxies[i].URL, "-trainer", control)
			require.Zero(t, code, errs)
		}
	}
	tr.until(t, joined.came)
	fleet("add", 1, 2, 3)
	awaitStates(t, control, "HEALTHY", "HEALTHY", "HEALTHY", "HEALTHY")
	close(joined.open)
	tr.until(t, left.came)
	fleet("drain", 2, 3)
	require.Equal(t, []string{"HEALTHY", "HEALTHY", "DRAINED", "DRAINED"}, statesOf(t, control))
	fleet("remove", 2, 3)
	close(left.open)
	tr.end(t)

	requireSameRun(t, want, tr.out, steps)
	var sizes []float64
	for i, values := range metricsOf(t, tr.out) {
		sizes = append(sizes, values["fleet/size"])
		_, by := trainedOn(t, tr.out, i+1)
		if meetings[int64(i+1)] != nil {
			require.Len(t, by, servedIn(i+1, joinIn, leaveIn), "step %d: every instance samples", i+1)
		}
	}
	require.Equal(t, []float64{1, 1, 1, 4, 4, 4, 2, 2, 2}, sizes)
	requireRows(t, tr.out, proxies, joinIn, leaveIn)
}

// statesOf returns the states of a run's instances. It requires that drained ones have no work.
func statesOf(t *testing.T, at string) []string {
	t.Helper()
	code, out, errs := command(t, "fleet", "list", "-json", "-trainer", at)
	require.Zero(t, code, errs)
	var members []control.Instance
	require.NoError(t, json.Unmarshal([]byte(out), &members))
	var states []string
	for _, m := range members {
		states = append(states, m.State)
		require.True(t, m.State != "DRAINED" || m.Requests == 0, "%+v", m)
	}
	return states
}

// awaitStates waits until a run's instances are in the given states.
func awaitStates(t *testing.T, at string, want ...string) {
	t.Helper()
	end := time.Now().Add(5 * time.Minute)
	for got := statesOf(t, at); !slices.Equal(want, got); got = statesOf(t, at) {
		require.True(t, time.Now().Before(end), "instances are %v, expected %v", got, want)
		<-time.After(10 * time.Millisecond)
	}
}

// servedIn returns the number of instances that serve at a step's end.
func servedIn(step, joinIn, leaveIn int) int {
	switch {
	case step < joinIn:
		return 1
	case step < leaveIn:
		return 4
	}
	return 2
}

// meeting holds the requests of a step until every instance has one, so that each samples however
// quickly the others do.
type meeting struct {
	missing atomic.Int64
	came    [4]sync.Once // by instance
	all     chan struct{}
}

func newMeeting(instances int) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(int64(instances))
	return m
}

// attend returns when x, a request to instance i, may proceed.
func (m *meeting) attend(i int, x *exchange) {
	m.came[i].Do(func() {
		if m.missing.Add(-1) == 0 {
			close(m.all)
		}
	})
	x.wait(m.all)
}

// requireRows requires that a run's trace has a row per instance, with spans from the step
// in which it joined to the one in which it left.
func requireRows(t *testing.T, run string, proxies []*proxy, joinIn, leaveIn int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, trace.File))
	require.NoError(t, err)
	type event struct {
		Name string  `json:"name"`
		Kind string  `json:"ph"`
		Time float64 `json:"ts"`
		Dur  float64 `json:"dur"`
		TID  int     `json:"tid"`
		Args struct {
			Track string `json:"track"`
			Step  int    `json:"step"`
		} `json:"args"`
	}
	var trace struct {
		Events []event `json:"traceEvents"`
	}
	require.NoError(t, json.Unmarshal(text, &trace))
	rows, spans, steps := map[int]string{}, map[string][]event{}, map[int]event{}
	for _, e := range trace.Events {
		switch {
		case e.Name == "thread_name":
			rows[e.TID] = e.Args.Track
		case e.Name == "step":
			steps[e.Args.Step] = e
		case e.Kind == "X":
			spans[rows[e.TID]] = append(spans[rows[e.TID]], e)
		}
	}
	end := func(e event) float64 { return e.Time + e.Dur }
	for i, p := range proxies {
		row := spans[p.URL]
		require.NotEmpty(t, row, "instance %d has a row", i)
		first := slices.MinFunc(row, func(a, b event) int { return int(min(max(a.Time-b.Time, -1), 1)) })
		last := slices.MaxFunc(row, func(a, b event) int { return int(min(max(end(a)-end(b), -1), 1)) })
		if i == 0 {
			require.Equal(t, []any{"publish", 1}, []any{first.Name, first.Args.Step})
		} else {
			require.Equal(t, []any{"publish", joinIn}, []any{first.Name, first.Args.Step})
			require.GreaterOrEqual(t, first.Time, steps[joinIn].Time)
			require.LessOrEqual(t, first.Time, end(steps[joinIn]))
		}
		if i < 2 {
			require.GreaterOrEqual(t, last.Time, steps[len(steps)].Time)
		} else {
			require.LessOrEqual(t, end(last), end(steps[leaveIn]))
		}
	}
}

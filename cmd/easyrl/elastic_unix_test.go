//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	const joinIn, leaveIn, steps = 4, 7, 9
	dir := tinyRun(t)
	want := trainTiny(t, dir, "embedded", fleetSettings(steps)...)
	_, proxies := startServers(t, dir, 4)
	joined, left := newGate(joinIn), newGate(leaveIn)
	for i, p := range proxies {
		p.on(func(x *exchange) {
			if i == 0 {
				joined.hold(x)
				left.hold(x)
			}
			if !x.update {
				<-time.After(40 * time.Millisecond) // the bottleneck is instances, not cores
			}
			x.pass()
		})
	}
	tr := startTraining(t, dir, "elastic", fleet.DefaultConfig(), append(fleetSettings(steps),
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
	close(joined.open)
	tr.until(t, left.came)
	fleet("drain", 2, 3)
	requireStates(t, control, "HEALTHY", "HEALTHY", "DRAINED", "DRAINED")
	fleet("remove", 2, 3)
	close(left.open)
	tr.end(t)

	requireSameRun(t, want, tr.out, steps)
	var sizes, busy []float64
	var seconds []string
	for i, values := range metricsOf(t, tr.out) {
		sizes = append(sizes, values["fleet/size"])
		busy = append(busy, values["idle/instances"])
		seconds = append(seconds, fmt.Sprintf("%.2f", values["timing_s/step"]))
		_, by := trainedOn(t, tr.out, i+1)
		served := []int{1, 4, 2}[stageOf(i+1, joinIn, leaveIn)]
		if i+1 != joinIn && i+1 != leaveIn { // in those steps shares depend on how quickly instances join and leave
			require.Len(t, by, served, "step %d: every instance samples", i+1)
		}
	}
	require.Equal(t, []float64{1, 1, 1, 4, 4, 4, 2, 2, 2}, sizes)
	t.Logf("seconds a step with 1, 4 and 2 instances: %s; idle: %.2f", strings.Join(seconds, " "), busy)
	requireRows(t, tr.out, proxies, joinIn, leaveIn)
}

// requireStates requires that a run's instances are in the given states and that draining
// ones have no work.
func requireStates(t *testing.T, at string, states ...string) {
	t.Helper()
	code, out, errs := command(t, "fleet", "list", "-json", "-trainer", at)
	require.Zero(t, code, errs)
	var members []control.Instance
	require.NoError(t, json.Unmarshal([]byte(out), &members))
	var got []string
	for _, m := range members {
		got = append(got, m.State)
		require.True(t, m.State != "DRAINED" || m.Requests == 0, "%+v", m)
	}
	require.Equal(t, states, got)
}

// stageOf returns 0 before the step in which instances join, 1 from that step on, and 2
// from the step in which some leave.
func stageOf(step, joinIn, leaveIn int) int {
	switch {
	case step < joinIn:
		return 0
	case step < leaveIn:
		return 1
	}
	return 2
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

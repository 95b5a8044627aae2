package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/tracetest"
	"github.com/easyrl/easyrl/report/trace"
)

// traceOf returns a run's trace, which must be complete.
func traceOf(t *testing.T, run string) *tracetest.Trace {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(run, trace.File))
	require.NoError(t, err)
	tr, err := tracetest.Read(data)
	require.NoError(t, err)
	require.Zero(t, tr.Dropped)
	return tr
}

// way returns the names of the spans along a flow, without consecutive duplicates.
func way(flow []tracetest.Slice) string {
	var names []string
	for _, s := range flow {
		names = append(names, s.Name)
	}
	return strings.Join(slices.Compact(names), " ")
}

// namesOn returns the span names of each track, sorted.
func namesOn(tr *tracetest.Trace) map[string][]string {
	names := map[string][]string{}
	for _, s := range tr.Slices {
		names[s.Track] = append(names[s.Track], s.Name)
	}
	for track := range names {
		slices.Sort(names[track])
		names[track] = slices.Compact(names[track])
	}
	return names
}

// requireFlows requires that each prompt of 5 steps has a flow through its instance to the
// micro-batch of its step that trained it.
func requireFlows(t *testing.T, tr *tracetest.Trace, want *regexp.Regexp) {
	t.Helper()
	require.Len(t, tr.Flows, 5*6)
	of := map[float64]int{}
	for _, flow := range tr.Flows {
		require.Regexp(t, want, way(flow))
		first, last := flow[0], flow[len(flow)-1]
		require.Equal(t, first.Args["step"], last.Args["step"])
		require.NotEmpty(t, first.Args["prompt"])
		of[first.Args["step"].(float64)]++
		for _, s := range flow {
			require.GreaterOrEqual(t, s.Begin, first.Begin)
			if s.Track == "producer" {
				require.Equal(t, first.Row, s.Row, "a group keeps its row")
			}
		}
	}
	require.Equal(t, map[float64]int{1: 6, 2: 6, 3: 6, 4: 6, 5: 6}, of)
}

func TestTraceOfRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	tr := traceOf(t, trainTiny(t, dir, "run", "inference.instances=2", "eval.every=2", "loss.beta=0.05",
		`loss.old_policy="previous-step"`))
	instance := []string{"decode", "idle", "prefill", "publish"}
	require.Equal(t, map[string][]string{
		"trainer": {"backward", "checkpoint", "eval", "forward", "loss", "micro-batch", "old policy",
			"optimizer", "policy",
			"publish", "reduce", "reference", "step", "wait"},
		"disk":       {"write checkpoint"},
		"producer":   {"prompt", "queue", "score"},
		"embedded-1": instance, "embedded-2": instance,
	}, namesOn(tr))
	require.Equal(t, "trainer", tr.Rows[0])
	requireFlows(t, tr, regexp.MustCompile(`^prompt prefill (decode )?score queue micro-batch$`))
	depths := map[string]int{"step": 0, "wait": 1, "micro-batch": 1, "forward": 2, "backward": 2, "policy": 3,
		"old policy": 3, "reference": 3,
		"optimizer": 1, "reduce": 2}
	for _, s := range tr.Slices {
		if depth, ok := depths[s.Name]; ok {
			require.Equal(t, depth, s.Depth, s.Name)
		}
	}
}

func TestTraceOfServers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	root, _, _ := serveFolder(t, "-model", initTiny(t, dir, "served", 9), "-threads", "1", "-max-running", "5")
	tr := traceOf(t, trainTiny(t, dir, "run", "loss.beta=0.05", "inference.kind=easyrl",
		fmt.Sprintf("inference.endpoints=[%q]", root)))
	require.Equal(t, []string{"publish", "request"}, namesOn(tr)[root])
	requireFlows(t, tr, regexp.MustCompile(`^prompt request score queue micro-batch$`))
	for _, s := range tr.Named("request") {
		require.Positive(t, s.Args["tokens"])
	}
}

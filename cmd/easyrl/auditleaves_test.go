package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/rollout"
)

// recordedLeaves returns the lines of a step's linear sums, apart from their order.
func recordedLeaves(t *testing.T, run string, step int) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "leaves", checkpoint.StepName(step)+".jsonl"))
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	slices.Sort(lines)
	return lines
}

// The linear sums of leaves are the same on every mesh, and add up to those of the updates. An audit confirms them, all
// or some.
func TestAuditLeaves(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"one update":      {},
		"several updates": {"train.minibatches=3", "loss.old_policy=previous-step", "loss.beta=0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, model := range []string{"qwen2", "qwen3"} { // with tied embeddings, and without
				dir := meshRun(t, model)
				settings := append([]string{"run.steps=2", "checkpoint.keep=0", "log.audit=true"}, settings...)
				plain := trainTiny(t, dir, "plain", settings...)
				meshes := []parallel.Mesh{{DP: 2, TP: 2, PP: 2}, {DP: 2, TP: 1, PP: 3}, {DP: 2, TP: 4, PP: 1}}
				for zero, m := range meshes {
					setting := fmt.Sprintf("parallel={dp=%d,tp=%d,pp=%d,zero=%d,sequence=%v}", m.DP, m.TP, m.PP, zero,
						zero == 2)
					run := trainTiny(t, dir, fmt.Sprint("mesh-", zero), append(settings, setting)...)
					for step := 1; step <= 2; step++ {
						require.Equal(t, recordedLeaves(t, plain, step), recordedLeaves(t, run, step), setting)
					}
					requireAudits(t, run, 2)
				}
				requireAudits(t, plain, 1)
				requireAudits(t, plain, 2)
				for seed := 1; seed <= 3; seed++ {
					code, out, errs := command(t, "audit", plain, "2", "-leaves", "2", "-seed", fmt.Sprint(seed))
					require.Zero(t, code, errs)
					require.Regexp(t, fmt.Sprintf(`^step 2: same gradients of 2 of [3-6] leaves \(seed %d\)`, seed),
						out)
				}
			}
		})
	}
}

// An audit of leaves names what was altered. Without recorded sums it compares log-probabilities.
func TestAuditLeavesNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	settings := []string{"run.steps=2", "checkpoint.keep=0", "rollout.prompts_per_step=16"}
	whole := trainTiny(t, dir, "whole", append(settings, "log.audit=true")...)
	without := trainTiny(t, dir, "without", settings...)
	require.Equal(t, checkpointHash(t, without, 2), checkpointHash(t, whole, 2), "the record changes no bit")
	leaves := func(run string) string { return filepath.Join(run, "leaves", "step-000002.jsonl") }
	change := func(t *testing.T, run, line string) { // the first sum of the first line that contains line
		text, err := os.ReadFile(leaves(run))
		require.NoError(t, err)
		before, after, found := strings.Cut(string(text), line)
		require.True(t, found)
		digit := "0"
		if after[0] == '0' {
			digit = "1"
		}
		require.NoError(t, os.WriteFile(leaves(run), []byte(before+line+digit+after[1:]), 0o644))
	}
	const leaf = "group [0-9]+, responses \\[[0-9 ]+\\]"
	for name, c := range map[string]struct {
		run   string
		alter func(t *testing.T, run string)
		args  []string
		code  int
		want  string
	}{
		"nothing": {whole, func(*testing.T, string) {}, []string{"-leaves", "all"}, exitDone,
			"^step 2: same weights, checksum "},
		"nothing in a part": {whole, func(*testing.T, string) {}, []string{"-leaves", "1"}, exitDone,
			"^step 2: same gradients of 1 of [0-9]+ leaves"},
		"nothing without sums": {without, func(*testing.T, string) {}, []string{"-leaves", "5", "-seed", "3"}, exitDone,
			`^step 2: same log-probabilities of 5 of 16 groups \(seed 3\); without log.audit, the run records no `},
		"sum": {whole, func(t *testing.T, run string) { change(t, run, `"sums":["`) }, nil, exitFailed,
			"the recorded sums of the leaves of update 1 add up to [0-9a-f]{16} for model.embed_tokens.weight, but " +
				"the recorded total is [0-9a-f]{16}; 1 other"},
		"sum in a part": {whole, func(t *testing.T, run string) {
			change(t, run, `"sums":["`)
			change(t, run, `"total":["`)
		}, []string{"-leaves", "99"}, exitFailed, "step 2 differs: .*; 1 other differences of leaves\n$"},
		"total": {whole, func(t *testing.T, run string) { change(t, run, `"total":["`) },
			[]string{"-leaves", "1"}, exitFailed,
			"the recorded sums of the leaves of update 1 add up to "},
		"leaf": {whole, func(t *testing.T, run string) { change(t, run, `"update":`) }, nil, exitUsage,
			"step-000002.jsonl:2: update [0-9]+ and [0-9]+ sums, expected update 1 and "},
		"reward": {whole, func(t *testing.T, run string) {
			alterGroup(t, run, 2, 1, func(g *rollout.Group) { g.Responses[0].Reward += 2 })
		}, []string{"-leaves", "99"}, exitFailed, "update 1, " + leaf},
		"token": {whole, func(t *testing.T, run string) {
			for i := range 16 {
				alterGroup(t, run, 2, i, func(g *rollout.Group) { g.Responses[0].Spans[0].IDs[0] ^= 1 })
			}
		}, []string{"-leaves", "1"}, exitFailed, "response 0, token 0: recorded log-probability "},
		"token without sums": {without, func(t *testing.T, run string) {
			alterGroup(t, run, 2, 4, func(g *rollout.Group) { g.Responses[3].Spans[0].IDs[0] ^= 1 })
		}, []string{"-leaves", "16"}, exitFailed, "step 2 differs: group 4 .*, response 3, token 0: recorded "},
		"missing": {whole, func(t *testing.T, run string) {
			require.NoError(t, os.Remove(leaves(run)))
		}, nil, exitUsage,
			"log.audit is true, but the sums of step 2 are missing: "},
		"truncated": {whole, func(t *testing.T, run string) {
			info, err := os.Stat(leaves(run))
			require.NoError(t, err)
			require.NoError(t, os.Truncate(leaves(run), info.Size()/2))
		}, nil, exitUsage, "step-000002.jsonl:[0-9]+: unexpected end of JSON input\n$"},
		"cut": {whole, func(t *testing.T, run string) {
			text, err := os.ReadFile(leaves(run))
			require.NoError(t, err)
			lines := strings.SplitAfter(string(text), "\n")
			require.NoError(t, os.WriteFile(leaves(run), []byte(strings.Join(lines[:len(lines)-2], "")), 0o644))
		}, nil, exitUsage, "the file ends, expected the total of update 1\n$"},
		"bad number": {whole, func(*testing.T, string) {}, []string{"-leaves", "0"}, exitUsage,
			`audit: -leaves is "0", expected all or a number from 1\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := copyDir(t, c.run, t.TempDir(), "run")
			c.alter(t, run)
			code, out, errs := command(t, append([]string{"audit", run, "2"}, c.args...)...)
			require.Equal(t, c.code, code, errs)
			if code == exitDone {
				require.Regexp(t, c.want, out)
			} else {
				require.Regexp(t, c.want, errs)
				requireOneLine(t, errs[strings.LastIndex(errs, "error: "):], "")
			}
		})
	}
}

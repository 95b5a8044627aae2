package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repeat returns n lines of a format that takes the line's number.
func repeat(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Load reports the first faults and stops. Without its limits, each row would take minutes.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, document string
		faults         int // that have a place
		last           string
	}{
		{"unknown keys", repeat(40000, "unknown_key_%d = 1\n"), maxFaults,
			"these are the first 20 errors; others follow"},
		{"unknown keys of a section", "[rollout]\n" + repeat(9000, "grp_size_%d = 1\n"), maxFaults,
			"these are the first 20 errors; others follow"},
		{"unknown sections", repeat(40000, "[s%d]\n"), maxFaults, "these are the first 20 errors; others follow"},
		{"wrong values", "[reward.parts.p]\nkind = 1\n" + repeat(250, "[reward.parts.p%d]\nkind = 1\n"), maxFaults,
			"these are the first 20 errors; others follow"},
		{"short keys", repeat(100000, "a%x=1\n"), maxFaults, "these are the first 20 errors; others follow"},
		{"an inline table", "[reward]\nx = {" + strings.TrimSuffix(repeat(60000, "k%d=1,"), ",") + "}\n", 1,
			"x.toml:2: file has more than 10000 keys"},
		{"a key of many parts", "run.steps = 3\n" + strings.Repeat("a.", 400000) + "a = 1\n", 1,
			"x.toml:2: key has 400001 parts, expected at most 20"},
		{"many named tables", repeat(9000, "[reward.parts.p%d]\n"), 1, "exceeds the limit of 256 named tables"},
		{"a long file", "#" + strings.Repeat("x", maxDocument), 0, "has 1048577 bytes, expected at most 1048576"},
		{"nesting", "a = " + strings.Repeat("[", 400000), 1, "nested more than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.toml")
			require.NoError(t, os.WriteFile(path, []byte(test.document), 0o600))
			_, err := Load([]string{path}, nil)
			require.ErrorContains(t, err, test.last)
			require.Equal(t, test.faults, strings.Count(err.Error(), "x.toml:"), "%.2000s", err)
		})
	}
}

// Settings have the limits of files, and the time for many grows with their number.
func TestManySettings(t *testing.T) {
	t.Parallel()
	set := func(n int, format string) []string {
		return strings.Split(strings.TrimSuffix(repeat(n, format), "\n"), "\n")
	}
	for name, test := range map[string]struct {
		settings []string
		want     string
	}{
		"known keys":   {set(10000, "run.seed=%d\n"), ""},
		"named tables": {set(250, "reward.parts.p%d.weight=1\n"), ""},
		"unknown keys": {set(10000, "run.stepz%d=3\n"), "these are the first 20 errors; others follow"},
		"too many":     {set(10001, "run.seed=%d\n"), "10001 settings, expected at most 10000"},
		"many parts":   {[]string{strings.Repeat("a.", 60000) + "a=1"}, "key has 60001 parts, expected at most 20"},
		"inline table": {[]string{"reward={" + strings.TrimSuffix(repeat(12000, "k%d=1,"), ",") + "}"},
			"file has more than 10000 keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(nil, test.settings)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.LessOrEqual(t, strings.Count(err.Error(), "\n"), 3*maxFaults)
		})
	}
}

// Nested named tables that settings create are known to all of them.
func TestSettingsOfNewTables(t *testing.T) {
	t.Parallel()
	r, err := Load(nil, []string{`reward.sources.a={kind="sum",parts={b={kind="exact"}}}`,
		"reward.sources.a.parts.b.weight=3", "reward.sources.c.kind=math"})
	require.NoError(t, err)
	require.InDelta(t, 3, r.Reward.Sources["a"].Parts["b"].Weight, 0)
	require.Equal(t, "math", r.Reward.Sources["c"].Kind)
}

// Long lists are checked in one pass.
func TestLongLists(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.toml")
	for _, document := range []string{
		"[inference]\nkind = \"vllm\"\nendpoints = [" + repeat(20000, `"http://h%d:1",`) + "]\n",
		"[reward]\nkind = \"format\"\ntags = [" + repeat(50000, `"t%d",`) + "]\n",
	} {
		require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
		r, err := Load([]string{path}, []string{"model.path=m", "data.train=d"})
		require.NoError(t, err)
		require.NoError(t, r.Validate(TrainTask))
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each command that reads a file which a crash left empty or cut off says so in a line and
// skips it.
func TestDamagedRunFiles(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	whole := trainTiny(t, dir, "whole", "run.steps=2", "checkpoint.keep=0")
	write(t, whole, "warnings.jsonl", `{"step":1,"kind":"a","text":"b"}`+"\n")
	want := weightsHash(t, trainTiny(t, dir, "longer", "run.steps=3"), 3)
	damages := map[string]func(text string) string{
		"torn":  func(text string) string { return text[:len(text)-len(text)/20-3] },
		"zeros": func(text string) string { return text + strings.Repeat("\x00", 300) },
		"empty": func(string) string { return "" },
	}
	for _, name := range []string{"metrics.jsonl", "warnings.jsonl", "trace.json", "identity.json", "about.json",
		"machine.json", "rollouts/step-000002.jsonl"} {
		for damage, spoil := range damages {
			t.Run(damage+" "+name, func(t *testing.T) {
				t.Parallel()
				run := copyDir(t, whole, t.TempDir(), "run")
				path := filepath.Join(run, filepath.FromSlash(name))
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, []byte(spoil(string(text))), 0o644))
				lines := 1
				if damage == "empty" && (name == "metrics.jsonl" || name == "warnings.jsonl") {
					lines = 0 // as of a run without steps or warnings
				}
				requireSaid := func(code int, errs string) {
					require.Zero(t, code, errs)
					require.Equal(t, lines, strings.Count(errs, "warning: "+path), errs)
					require.Equal(t, lines, strings.Count(errs, path), errs)
				}
				if name != "metrics.jsonl" || damage != "empty" {
					code, _, errs := command(t, "report", run)
					requireSaid(code, errs)
				}
				if strings.HasPrefix(name, "rollouts") && damage != "empty" {
					code, _, errs := command(t, "score", "-reward", "prefix", path)
					requireSaid(code, errs)
					code, _, errs = command(t, "replay", "-model", filepath.Join(run, "checkpoints", "step-000001"),
						"-rollouts", path, "-out", filepath.Join(t.TempDir(), "out"))
					requireSaid(code, errs)
				}
				code, errs := resumeTiny(t, dir, run, "run.steps=3")
				requireSaid(code, errs)
				require.Equal(t, want, weightsHash(t, run, 3))
				if !strings.HasPrefix(name, "rollouts") {
					_, _, errs := command(t, "report", run)
					require.NotContains(t, errs, "warning", fmt.Sprintf("the resumed run replaces %s", name))
				}
			})
		}
	}
}

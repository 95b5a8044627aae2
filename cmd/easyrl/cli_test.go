package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

func TestParseFlags(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args       string
		positional string
		flags      string // n, text, resume, set
		fault      string
	}{
		{"", "", "1  false ", ""},
		{"a.toml b.toml", "a.toml b.toml", "1  false ", ""},
		{"a.toml -set x.y=1 b.toml -resume -n 3", "a.toml b.toml", "3  true x.y=1", ""},
		{"--n=4 -text=a=b --set=x.y=z -set u.v=w a", "a", "4 a=b false x.y=z u.v=w", ""},
		{"-n -5 -text -x", "", "-5 -x false ", ""},
		{"-resume=false a - -- -n b", "a - -n b", "1  false ", ""},
		{"a -n", "", "", "-n needs a value"},
		{"-n x", "", "", `-n is "x", expected a whole number`},
		{"-resume=maybe", "", "", `-resume is "maybe", expected true or false`},
		{"-set novalue", "", "", `-set is "novalue": expected section.key=value`},
		{"a -resum", "", "", "unknown flag -resum, did you mean -resume?"},
		{"-st x.y=1", "", "", "unknown flag -st, did you mean -set?"},
		{"-wibble", "", "", "unknown flag -wibble, expected one of -n, -resume, -set, -text"},
		{"a --learning-rate=1e-5", "", "", "unknown flag --learning-rate=1e-5: use train.lr, as in -set train.lr=…"},
		{"a --bf16", "", "", "unknown flag --bf16: easyrl always computes in float32"},
		{"a --train.lr=1e-5", "", "", "unknown flag --train.lr=1e-5; pass a setting as -set train.lr=1e-5"},
		{"a -h", "", "", flag.ErrHelp.Error()},
		{"--help", "", "", flag.ErrHelp.Error()},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			fs := cli.NewFlags()
			n, text, resume := fs.Int("n", 1, ""), fs.String("text", "", ""), fs.Bool("resume", false, "")
			set := addSettings(fs)
			positional, err := cli.ParseFlags(fs, strings.Fields(test.args))
			if test.fault != "" {
				require.EqualError(t, err, test.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.positional, strings.Join(positional, " "))
			require.Equal(t, test.flags, fmt.Sprint(*n, " ", *text, " ", *resume, " ", set))
		})
	}
	_, err := cli.ParseFlags(cli.NewFlags(), []string{"-x"})
	require.EqualError(t, err, "unknown flag -x, expected no flags")
}

// command runs the command line and returns its status and output.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = execute(t.Context(), streams{in: strings.NewReader(""), out: &stdout, err: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	quickstart := filepath.Join("..", "..", "configs", "quickstart.toml")
	tests := []struct {
		name     string
		args     []string
		code     int
		out, err string // substrings
	}{
		{"nothing", nil, exitUsage, "", "easyrl check "},
		{"help", []string{"-h"}, exitDone, "easyrl report ", ""},
		{"help of a command", []string{"help", "check"}, exitDone,
			"Example:\n  easyrl check configs/quickstart.toml", ""},
		{"help anywhere", []string{"check", "a", "-h"}, exitDone, "-set section.key=value", ""},
		{"unknown command", []string{"chekc"}, exitUsage, "", `error: unknown command "chekc", did you mean check?`},
		{"strange command", []string{"wibble"}, exitUsage, "",
			`error: unknown command "wibble", expected one of train, sft, eval, `},
		{"help of an unknown command", []string{"help", "chekc"}, exitUsage, "", "did you mean check?"},
		{"flag before the command", []string{"-set", "x"}, exitUsage, "",
			"error: first argument is -set, expected a command: train, "},
		{"unknown flag", []string{"check", "-sett"}, exitUsage, "",
			"error: check: unknown flag -sett, did you mean -set? (see easyrl check -h)\n"},
		{"no file", []string{"check"}, exitUsage, "", "error: no configuration given, expected RUN.toml\n"},
		{"missing file", []string{"check", "none.toml"}, exitUsage, "",
			"error: read configuration: open none.toml: no such file"},
		{"setting alone", []string{"check", quickstart, "run.steps=3"}, exitUsage, "",
			"open run.steps=3: no such file or directory; pass a setting as -set run.steps=3\n"},
		{"faults", []string{"check", quickstart, "-set", "loss.kl=k4", "-set", "eval.k=0"}, exitUsage, "",
			"error: -set: loss.kl is \"k4\""},
		{"report of no run", []string{"report", t.TempDir()}, exitUsage, "",
			"is not a run folder, expected one with metrics.jsonl"},
		{"report of two", []string{"report", "a", "b"}, exitUsage, "",
			"error: report: got 2 arguments, expected one run folder\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := command(t, test.args...)
			require.Equal(t, test.code, code, errs)
			require.Contains(t, out, test.out)
			require.Contains(t, errs, test.err)
			if test.err == "" {
				require.Empty(t, errs)
			} else {
				require.Empty(t, out)
			}
		})
	}
}

func TestEveryVerbHasHelp(t *testing.T) {
	t.Parallel()
	for _, v := range verbs(streams{}) {
		code, out, errs := command(t, v.Name, "-h")
		require.Equal(t, exitDone, code)
		require.Empty(t, errs)
		require.Contains(t, out, "easyrl "+v.Name)
		require.Contains(t, v.Example+" ", "easyrl "+v.Name+" ")
		require.NotEmpty(t, v.Summary, v.Name)
		require.NotNil(t, v.Run, v.Name)
		v.Flags.VisitAll(func(f *flag.Flag) { require.NotEmpty(t, f.Usage, "%s -%s", v.Name, f.Name) })
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lines := `{"step":0,"eval/add/mean@1":0.25}` + "\n" + `{"step":1,"reward/mean":0.5,"eval/add/mean@1":0.75}` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(lines), 0o644))
	code, out, errs := command(t, "report", dir)
	require.Equal(t, exitDone, code, errs)
	require.Regexp(t, `eval/add/mean@1 +0.25 +0.75   0 to 1\n`, out)
	require.Contains(t, out, filepath.Join(dir, "report.html"))
	require.FileExists(t, filepath.Join(dir, "report.html"))
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("%w: interrupt", cli.ErrInterrupted))
	tests := []struct {
		name string
		ctx  context.Context
		err  error
		code int
		want string
	}{
		{"done", t.Context(), nil, exitDone, ""},
		{"failed", t.Context(), errors.New("publish: refused"), exitFailed, "error: publish: refused\n"},
		{"usage", t.Context(), fmt.Errorf("deep: %w", usage.Errorf("wrong")), exitUsage, "error: deep: wrong\n"},
		{"stopped", cancelled, fmt.Errorf("train: %w",
			run.StoppedError{Message: "stopped after step 7", Continue: "easyrl train a.toml -resume"}), exitStopped,
			"stopped after step 7\nhint: continue with: easyrl train a.toml -resume\n"},
		{"interrupted", cancelled, fmt.Errorf("generate: %w", context.Canceled), exitFailed,
			"error: stopped by signal: interrupt\n"},
		{"cancelled for another reason", t.Context(), context.Canceled, exitFailed, "error: context canceled\n"},
		{"several", t.Context(), usage.Wrap(errors.Join(errors.New("a:1: x\n  1 | y\n    | ^"), errors.New("z"))),
			exitUsage,
			"error: a:1: x\n  1 | y\n    | ^\nerror: z\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.Equal(t, test.code, exitStatus(test.ctx, &out, test.err))
			require.Equal(t, test.want, out.String())
		})
	}
}

package cli

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// The words of a command line run the verb with the same arguments and flags.
func TestWords(t *testing.T) {
	t.Parallel()
	type given struct {
		args, set []string
		n         int
		all, done bool
	}
	run := func(words ...string) (got given, again []string) {
		v := Verb{Name: "do", Flags: NewFlags()}
		var set List
		v.Flags.Var(&set, "set", "a setting")
		n := v.Flags.Int("n", 3, "a number")
		all, done := v.Flags.Bool("all", true, "a switch"), v.Flags.Bool("resume", false, "another")
		v.Run = func(_ context.Context, args []string) error {
			got = given{args, set.Values, *n, *all, *done}
			again = v.Words(args, "resume")
			return nil
		}
		require.NoError(t, Execute(t.Context(), []Verb{v}, words, io.Discard, io.Discard))
		return got, again[1:]
	}
	want, words := run("do", "a b", "-set", "x=1", "--n=7", "c", "-resume", "-set", "y='2'", "-all=false", "--", "-d")
	require.Equal(t, given{[]string{"a b", "c", "-d"}, []string{"x=1", "y='2'"}, 7, false, true}, want)
	got, _ := run(words...)
	want.done, want.args[2] = false, "./-d"
	require.Equal(t, want, got)
	_, words = run("do")
	require.Equal(t, []string{"do"}, words)
}

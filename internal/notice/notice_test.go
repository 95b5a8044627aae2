package notice

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind          Kind
		message, want string
	}{
		{Error, "x is 1, expected 2", "error: x is 1, expected 2"},
		{Warning, "slow", "warning: slow"},
		{Progress, "step 1/2", "step 1/2"},
		{Error, errors.Join(errors.New("a is 1"), errors.New("b is 2")).Error(), "error: a is 1\nerror: b is 2"},
		{Error, "run.toml:3: bad\n  3| x = \n     ^", "error: run.toml:3: bad\n  3| x = \n     ^"},
		{Error, "no prompt field\nhint: set data.prompt_key", "error: no prompt field\nhint: set data.prompt_key"},
		{Warning, "a\n\twhole\n\nb", "warning: a\n\twhole\n\nwarning: b"},
		{Hint, "error: inside", "error: inside"},
		{Error, "hinted: not a kind", "error: hinted: not a kind"},
		{Error, "", ""},
	} {
		require.Equal(t, test.want, Text(test.kind, test.message))
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	Print(&b, Warning, "100%% of %s\n", "a\nhint: b")
	Print(&b, Progress, "done")
	Print(&b, Error, "%s", "\x1b[2Jgone\r")
	require.Equal(t, "warning: 100% of a\nhint: b\ndone\nerror: \\x1b[2Jgone\\r\n", b.String())
}

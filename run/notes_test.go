package run

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// easyrl check writes the warnings of a run as JSON.
func TestWarningsOfACheckHideSecrets(t *testing.T) {
	t.Parallel()
	n := notes{log: io.Discard}
	n.warn("instance %s: refused", "http://ann:hunter2@a:1/v1")
	require.Equal(t, []string{"instance http://***@a:1/v1: refused"}, n.said)
}

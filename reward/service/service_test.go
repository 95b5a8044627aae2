package service

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShown(t *testing.T) {
	t.Parallel()
	require.Equal(t, "http://user:xxxxx@host/", Shown("http://user:secret@host/"))
}

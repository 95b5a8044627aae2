package report

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/notice"
)

// A blocked terminal does not block callers.
func TestNotesDoNotBlock(t *testing.T) {
	t.Parallel()
	writing, stopped := make(chan struct{}, 1), make(chan struct{})
	var lines []string
	n := NewNotes(func(kind notice.Kind, format string, args ...any) {
		lines = append(lines, notice.Text(kind, fmt.Sprintf(format, args...)))
		if len(lines) == 1 {
			writing <- struct{}{}
			<-stopped
		}
	})
	n.Say(notice.Progress, "first")
	<-writing
	for i := range maxNotes + 7 {
		n.Say(notice.Progress, "%d", i)
	}
	close(stopped)
	n.Close()
	require.Len(t, lines, 2+maxNotes)
	require.Equal(t, []string{"first", "warning: 7 lines dropped", "7"}, lines[:3])
	n.Say(notice.Progress, "late")
	n.Close()
	require.Len(t, lines, 2+maxNotes)
}

package program

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var end tail
	require.Empty(t, end.lastLine())
	end.add([]byte("first\nsecond\n\n"))
	require.Equal(t, "second", end.lastLine())
	for _, n := range []int{1, maxTail / 2, maxTail - 1, maxTail, maxTail + 1, 3 * maxTail, 7} {
		end = tail{}
		all := ""
		for i := range 9 {
			text := strings.Repeat(string(rune('a'+i)), n) + "\n"
			all += text
			end.add([]byte(text))
			require.Equal(t, all[max(0, len(all)-maxTail):], string(end.end))
		}
	}
	end.add([]byte(strings.Repeat("z", maxTail-1) + "\n"))
	require.Equal(t, strings.Repeat("z", maxQuote)+"…", end.lastLine())
}

func TestTailAllocatesNothing(t *testing.T) {
	var end tail
	for _, chunk := range [][]byte{make([]byte, maxRead), make([]byte, 100), make([]byte, 1)} {
		require.Zero(t, testing.AllocsPerRun(1000, func() { end.add(chunk) }))
	}
}

// slow is a reader of n chunks, each of which takes a while.
type slow struct {
	n    int
	each time.Duration
}

func (s *slow) Read(b []byte) (int, error) {
	if s.n--; s.n < 0 {
		return 0, io.EOF
	}
	<-time.After(s.each)
	return len(b), nil
}

// However much a program writes, reading it takes at most a fifth of a core.
func TestReadingPauses(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{time.Microsecond, readTime / 10, readTime} {
		synctest.Test(t, func(t *testing.T) {
			const n = 10_000
			began := time.Now()
			(&tail{}).read(&slow{n, each})
			require.LessOrEqual(t, 5*n*each, time.Since(began)+10*readTime)
		})
	}
}

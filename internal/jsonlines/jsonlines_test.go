package jsonlines

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	t.Parallel()
	torn := errors.New("disk is gone")
	for name, test := range map[string]struct {
		in    io.Reader
		limit int
		want  []Line
	}{
		"empty": {strings.NewReader(""), 10, nil},
		"blank lines": {strings.NewReader("\n a \r\n\n\tb"), 10,
			[]Line{{Number: 2, Text: []byte("a")}, {Number: 4, Text: []byte("b")}}},
		"too long": {strings.NewReader("a\n" + strings.Repeat("b", 11)), 10,
			[]Line{{Number: 1, Text: []byte("a")}, {Number: 2, Err: errors.New("line is longer than 10 bytes")}}},
		"failing reader": {io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(torn)), 10,
			[]Line{{Number: 1, Text: []byte("a")}, {Number: 2, Err: torn}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []Line
			for l := range Read(t.Context(), test.in, test.limit) {
				got = append(got, l)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// A cancelled context ends a read that blocks, as one of a terminal does.
func TestReadEndsWithContext(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	defer out.Close() //nolint:errcheck // ends the reader
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = out.Write([]byte("a\n")) }()
	n := 0
	for range Read(ctx, in, 10) {
		n++
		cancel()
	}
	require.Equal(t, 1, n)
}

//go:build unix

package filetype

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Open, Read and Check refuse everything but regular files, through links too, without
// opening it: opening the pipe would block.
func TestRegular(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "reg") // short, for the socket's path
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("file"), []byte("text"), 0o600))
	require.NoError(t, os.Mkdir(in("sub"), 0o700))
	require.NoError(t, syscall.Mkfifo(in("pipe"), 0o600))
	socket, err := net.Listen("unix", in("socket"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, socket.Close()) })
	for link, target := range map[string]string{"to-file": "file", "to-link": "to-file", "to-pipe": "pipe",
		"to-to-pipe": "to-pipe", "to-zero": "/dev/zero", "to-socket": "socket", "loop": "loop"} {
		require.NoError(t, os.Symlink(target, in(link)))
	}
	for _, test := range []struct{ path, want string }{
		{in("file"), ""},
		{in("to-file"), ""},
		{in("to-link"), ""},
		{in("pipe"), "is a pipe, expected a regular file"},
		{in("to-pipe"), "is a pipe, expected a regular file"},
		{in("to-to-pipe"), "is a pipe, expected a regular file"},
		{in("socket"), "is a socket, expected a regular file"},
		{in("to-socket"), "is a socket, expected a regular file"},
		{in("to-zero"), "is a device, expected a regular file"},
		{"/dev/zero", "is a device, expected a regular file"},
		{in("sub"), "is a folder, expected a regular file"},
		{in("missing"), "no such file"},
		{in("loop"), "too many levels of symbolic links"},
	} {
		data, err := Read(test.path)
		input, inputErr := ReadInput(test.path, 4)
		if test.want == "" {
			require.NoError(t, err, test.path)
			require.NoError(t, inputErr, test.path)
			require.Equal(t, "text", string(data))
			require.Equal(t, "text", string(input))
			require.NoError(t, Check(test.path))
			continue
		}
		require.ErrorContains(t, err, test.want)
		require.ErrorContains(t, inputErr, test.want)
		if strings.Contains(test.want, "expected") {
			require.ErrorIs(t, Check(test.path), ErrIrregular)
		}
	}
	_, err = ReadLimited(in("file"), 3)
	require.EqualError(t, err, in("file")+" has 4 bytes, expected at most 3")
	require.NoError(t, os.Truncate(in("file"), maxRead+1)) // a hole
	_, err = Read(in("file"))
	require.ErrorContains(t, err, "expected at most 1073741824")
	require.ErrorIs(t, CheckFolder(dir), ErrIrregular)
	require.NoError(t, CheckFolder(in("sub")))
}

// What the process has been given may be a pipe.
func TestOpenInputOfAPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	_, err = w.WriteString("words")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	path := fmt.Sprintf("/dev/fd/%d", r.Fd())
	data, err := ReadInput(path, 5)
	require.NoError(t, err)
	require.Equal(t, "words", string(data))
	_, err = Read(path)
	require.ErrorIs(t, err, ErrIrregular)
	require.NoError(t, r.Close())
}

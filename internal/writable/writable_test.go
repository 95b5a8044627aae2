//go:build unix

package writable

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/filetype"
)

// TestMain also lets the test binary try folders as another user.
func TestMain(m *testing.M) {
	if dirs := os.Getenv("EASYRL_TEST_TRY"); dirs != "" {
		for _, dir := range strings.Split(dirs, ":") {
			fmt.Println(Folder(dir))
		}
		return
	}
	os.Exit(m.Run())
}

// state lists a tree with the times of its folders.
func state(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		all = append(all, fmt.Sprint(path, info.Mode(), info.Size(), info.ModTime()))
		return nil
	}))
	return all
}

// Folder agrees with creating the folder and a file in it, and leaves no trace.
func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("file"), nil, 0o644))
	require.NoError(t, os.Mkdir(in("folder"), 0o755))
	require.NoError(t, os.Symlink("folder", in("link")))
	require.NoError(t, os.Symlink("file", in("filelink")))
	require.NoError(t, os.Symlink("nowhere", in("dangling")))
	require.NoError(t, os.Symlink("loop", in("loop")))
	for _, name := range []string{"", "folder", "folder/", "link", "link/new", "new", "new/deep/er", "file", "file/new",
		"file/new/deep", "filelink", "filelink/x",
		"dangling", "dangling/x", "loop", "loop/x", strings.Repeat("x", 256), "new/" + strings.Repeat("x", 256),
		strings.Repeat("x", 255), "a\x00b",
		strings.Repeat("long/", 1000), "../" + filepath.Base(dir) + "/up", "/proc/easyrl/new", "/sys/easyrl",
		"/dev/null", "/dev/null/x"} {
		path := name
		if !filepath.IsAbs(name) {
			path = dir + "/" + name
		}
		before := state(t, dir)
		err := Folder(path)
		require.Equal(t, before, state(t, dir), name)
		if err != nil {
			require.True(t, Refused(err), "%s: %v", name, err)
		}
		_, statErr := os.Stat(path)
		really := os.MkdirAll(path, 0o755)
		if really == nil {
			var f *os.File
			if f, really = os.CreateTemp(path, "x"); really == nil {
				require.NoError(t, f.Close())
				require.NoError(t, os.Remove(f.Name()))
			}
		}
		require.Equal(t, really == nil, err == nil, "%s: %v, but in truth %v", name, err, really)
		if os.IsNotExist(statErr) && really == nil && strings.HasPrefix(name, "new") {
			require.NoError(t, os.RemoveAll(in("new")))
		}
	}
}

// A user without permission cannot write; root can.
func TestFolderOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs to become another user")
	}
	dir := t.TempDir()
	for path := dir; path != "/" && path != os.TempDir(); path = filepath.Dir(path) {
		require.NoError(t, os.Chmod(path, 0o755))
	}
	var dirs []string
	for _, name := range []string{"open", "open/new", "closed", "closed/new", "secret/inner"} {
		dirs = append(dirs, filepath.Join(dir, name))
	}
	require.NoError(t, os.Mkdir(dirs[0], 0o755))
	require.NoError(t, os.Chmod(dirs[0], 0o777))
	require.NoError(t, os.Mkdir(dirs[2], 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "secret"), 0o700))
	self := filepath.Join(dir, "self")
	binary, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(self, binary, 0o755))
	before := state(t, dir)
	cmd := exec.Command(self)
	cmd.Env = []string{"EASYRL_TEST_TRY=" + strings.Join(dirs, ":")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "<nil>\n<nil>\nwrite to "+dirs[2]+": permission denied\nwrite to "+dirs[2]+
		": permission denied\nmkdir "+dirs[4]+": permission denied\n", string(out))
	require.Equal(t, before, state(t, dir))
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, checkFile(path), "a new one")
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o644))
	before := state(t, dir)
	require.NoError(t, checkFile(path))
	require.Equal(t, before, state(t, dir))
	require.ErrorIs(t, checkFile(dir), filetype.ErrIrregular)
	require.True(t, Refused(checkFile(dir)))
	require.True(t, Refused(checkFile(filepath.Join(path, "below"))))
	require.False(t, Refused(syscall.ENOSPC))
}

func TestAmong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, os.WriteFile(other, nil, 0o644))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(path, link))
	require.False(t, Among(path, []string{other, "none"}))
	require.True(t, Among(path, []string{other, link}))
	require.False(t, Among("none", []string{"none"}))
}

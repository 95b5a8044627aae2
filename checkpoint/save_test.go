package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeModel returns a write function for Save that writes a minimal checkpoint.
func writeModel(value float32) func(string) error {
	return func(dir string) error {
		if err := os.Mkdir(filepath.Join(dir, "trainer"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "trainer", "state.json"), []byte(`{"step":1}`), 0o644); err != nil {
			return err
		}
		return WriteFile(filepath.Join(dir, modelName), []Source{constant("w", value, 8)}, nil)
	}
}

func saved(t testing.TB, root string, steps ...int) {
	t.Helper()
	for _, step := range steps {
		path, err := Save(root, StepName(step), writeModel(float32(step)))
		require.NoError(t, err)
		require.Equal(t, filepath.Join(root, StepName(step)), path)
	}
}

// first returns the first value of a checkpoint's weights.
func first(t testing.TB, dir string) float32 {
	t.Helper()
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	defer f.Close()
	w, _ := f.Tensor("w")
	values := make([]float32, w.Len())
	require.NoError(t, w.Float32s(values))
	return values[0]
}

// names lists the entries of a folder.
func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestSaveAndLatest(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "runs", "x", "checkpoints")
	_, _, skipped, err := Latest(root)
	require.ErrorIs(t, err, ErrNotFound, "no folder yet")
	require.Empty(t, skipped)
	require.NoError(t, Prune(root, 1))

	saved(t, root, 2, 10, 9)
	dir, step, skipped, err := Latest(root)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Equal(t, 10, step)
	require.Equal(t, filepath.Join(root, "step-000010"), dir)
	require.Equal(t, float32(10), first(t, dir))
	require.Equal(t, []string{"step-000002", "step-000009", "step-000010"}, names(t, root))
	require.NoError(t, Verify(dir))
	require.Equal(t, "step-1000000", StepName(1e6))

	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	require.NoError(t, err)
	m, err := parseManifest(text)
	require.NoError(t, err)
	require.Len(t, m.Files, 2)
	require.Equal(t, int64(10), m.Files["trainer/state.json"].Size)
}

func TestSaveReplaces(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for value := range 3 {
		_, err := Save(root, "best", writeModel(float32(value)))
		require.NoError(t, err)
		require.Equal(t, []string{"best"}, names(t, root))
		require.Equal(t, float32(value), first(t, filepath.Join(root, "best")))
	}
	// A broken checkpoint is replaced as well.
	require.NoError(t, os.Remove(filepath.Join(root, "best", manifestName)))
	_, err := Save(root, "best", writeModel(7))
	require.NoError(t, err)
	require.NoError(t, Verify(filepath.Join(root, "best")))
}

func TestSaveFaults(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	saved(t, root, 1)
	writeBytes(t, filepath.Join(root, "file"), nil)
	broken := errors.New("no more ink")
	for _, c := range []struct {
		name, folder string
		write        func(string) error
		want         string
	}{
		{"write", "step-000001", func(string) error { return broken }, "no more ink"},
		{"nothing", "step-000001", func(string) error { return nil }, "nothing was written"},
		{"link", "step-000001", func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "x")) },
			"x: L---------, expected files and folders only"},
		{"manifest", "step-000001", func(dir string) error {
			return errors.Join(writeModel(0)(dir), os.WriteFile(filepath.Join(dir, manifestName), nil, 0o644))
		}, "already exists, although only easyrl writes it"},
		{"trainer is a file", "step-000001", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "trainer"), nil, 0o644)
		}, "trainer"},
		{"a file in the place", "file", writeModel(0), "expected a folder or nothing"},
		{"no name", "", writeModel(0), "expected a plain folder name"},
		{"path", "a/b", writeModel(0), "expected a plain folder name"},
		{"up", "..", writeModel(0), "expected a plain folder name"},
		{"temp", ".tmp-x", writeModel(0), "expected a plain folder name"},
	} {
		path, err := Save(root, c.folder, c.write)
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, fmt.Sprintf("save checkpoint %q in %s: ", c.folder, root), c.name)
		require.Empty(t, path)
		require.Equal(t, []string{"file", "step-000001"}, names(t, root), "%s: no temporary files remain", c.name)
		require.NoError(t, Verify(filepath.Join(root, "step-000001")), "%s: the previous content stays", c.name)
	}
	_, err := Save(root, "step-000001", func(string) error { return broken })
	require.ErrorIs(t, err, broken)
	_, err = Save(filepath.Join(root, "file"), "x", writeModel(0))
	require.Error(t, err, "a file in the place of the folder")
	_, err = Save(filepath.Join(root, "file", "below"), "x", writeModel(0))
	require.Error(t, err)
	_, _, _, err = Latest(filepath.Join(root, "file"))
	require.Error(t, err)
	require.Error(t, Prune(filepath.Join(root, "file"), 1))
	require.ErrorContains(t, Prune(root, 0), "keep is 0, expected at least 1")
}

func TestVerifyFaults(t *testing.T) {
	t.Parallel()
	edit := func(change func(*manifest)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, manifestName))
			require.NoError(t, err)
			m, err := parseManifest(text)
			require.NoError(t, err)
			change(m)
			text, err = json.Marshal(m)
			require.NoError(t, err)
			writeBytes(t, filepath.Join(dir, manifestName), text)
		}
	}
	for _, c := range []struct {
		name   string
		damage func(*testing.T, string)
		want   string
	}{
		{"truncated", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, modelName), 100))
		}, modelName + ": 100 bytes, expected 96"},
		{"longer", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, modelName), 1000))
		}, modelName + ": 1000 bytes, expected 96"},
		{"flipped bit", func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, modelName))
			require.NoError(t, err)
			data[len(data)-1] ^= 1
			writeBytes(t, filepath.Join(dir, modelName), data)
		}, modelName + ": sha256 "},
		{"removed", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "trainer", "state.json")))
		}, "trainer/state.json: missing, expected 10 bytes"},
		{"a folder in the place", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, modelName)))
			require.NoError(t, os.Mkdir(filepath.Join(dir, modelName), 0o755))
		}, modelName + ": d---------, expected a regular file"},
		{"no manifest", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, manifestName)))
		}, "no trainer/manifest.json: the checkpoint is incomplete"},
		{"half a manifest", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, manifestName), 60))
		}, "trainer/manifest.json: unexpected end"},
		{"huge manifest", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, manifestName), maxManifest+1))
		}, "expected at most"},
		{"version", edit(func(m *manifest) { m.Version = 9 }), "version is 9, expected 1"},
		{"the manifest lists no files", edit(func(m *manifest) { m.Files = nil }), "the manifest lists no files"},
		{"escape", edit(func(m *manifest) { m.Files["../x"] = m.Files[modelName] }),
			`file "../x" is outside the checkpoint`},
		{"absolute", edit(func(m *manifest) { m.Files["/x"] = m.Files[modelName] }),
			`file "/x" is outside the checkpoint`},
		{"itself", edit(func(m *manifest) { m.Files[manifestName] = m.Files[modelName] }), "is outside the checkpoint"},
		{"sum", edit(func(m *manifest) { m.Files[modelName] = fileRecord{96, "beef"} }), "hexadecimal digits"},
		{"negative", edit(func(m *manifest) { m.Files["a"] = fileRecord{-1, strings.Repeat("0", 64)} }),
			`file "a": size -1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			saved(t, root, 1, 2, 3)
			dir := filepath.Join(root, StepName(3))
			c.damage(t, dir)
			err := Verify(dir)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "verify checkpoint "+dir)

			// Latest falls back to the previous checkpoint and reports the broken
			// one.
			path, step, skipped, err := Latest(root)
			require.NoError(t, err)
			require.Equal(t, 2, step)
			require.Equal(t, filepath.Join(root, StepName(2)), path)
			require.Len(t, skipped, 1)
			require.ErrorContains(t, skipped[0], c.want)

			// Prune keeps the newest complete checkpoint besides the newest.
			require.NoError(t, Prune(root, 1))
			require.Equal(t, []string{StepName(2), StepName(3)}, names(t, root))
		})
	}
	require.ErrorIs(t, Verify(t.TempDir()), fs.ErrNotExist)
}

func TestAllBroken(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	saved(t, root, 1, 2)
	for _, step := range []int{1, 2} {
		require.NoError(t, os.Remove(filepath.Join(root, StepName(step), manifestName)))
	}
	_, _, skipped, err := Latest(root)
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "none of the 2 named step-N is complete")
	require.Len(t, skipped, 2)
	require.ErrorContains(t, skipped[0], StepName(2), "newest first")
}

// A process may die after any step of a save.
func TestCrashWhileSaving(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"temp", "half", "written", "sealed"} {
		root := t.TempDir()
		saved(t, root, 1, 2)
		temp, err := makeTemp(root, StepName(3))
		require.NoError(t, err)
		switch after {
		case "half":
			writeBytes(t, filepath.Join(temp, modelName), []byte("half"))
		case "written":
			require.NoError(t, writeModel(3)(temp))
		case "sealed":
			require.NoError(t, writeModel(3)(temp))
			require.NoError(t, seal(temp))
		}
		_, step, skipped, err := Latest(root)
		require.NoError(t, err, after)
		require.Equal(t, 2, step, "a checkpoint without its name does not count")
		require.Empty(t, skipped)
		saved(t, root, 3)
		require.NoError(t, Prune(root, 2))
		require.Equal(t, []string{StepName(2), StepName(3)}, names(t, root), after)
	}
}

// Without an atomic exchange, a replacement takes two renames.
func TestCrashWhileReplacing(t *testing.T) {
	t.Parallel()
	never := func(_, _ string) error { return errors.ErrUnsupported }
	prepare := func() (root, temp string) {
		root = t.TempDir()
		saved(t, root, 4, 5)
		temp, err := makeTemp(root, StepName(5))
		require.NoError(t, err)
		require.NoError(t, errors.Join(writeModel(55)(temp), seal(temp)))
		return root, temp
	}
	root, temp := prepare()
	require.NoError(t, replace(root, temp, StepName(5), never))
	require.Equal(t, []string{StepName(4), StepName(5)}, names(t, root))
	require.Equal(t, float32(55), first(t, filepath.Join(root, StepName(5))))

	// A crash between the renames: the old checkpoint is found and survives
	// pruning.
	root, _ = prepare()
	old := filepath.Join(root, replacedPrefix+StepName(5))
	require.NoError(t, os.Rename(filepath.Join(root, StepName(5)), old))
	for range 2 {
		dir, step, _, err := Latest(root)
		require.NoError(t, err)
		require.Equal(t, 5, step)
		require.Equal(t, old, dir)
		require.Equal(t, float32(5), first(t, dir))
		require.NoError(t, Prune(root, 1))
		require.Equal(t, []string{replacedPrefix + StepName(5)}, names(t, root))
	}
	// The next save of that step replaces it.
	saved(t, root, 5)
	require.NoError(t, Prune(root, 1))
	require.Equal(t, []string{StepName(5)}, names(t, root))

	// A crash after both renames, before the old checkpoint is removed.
	root, temp = prepare()
	require.NoError(t, os.Rename(filepath.Join(root, StepName(5)), filepath.Join(root, replacedPrefix+StepName(5))))
	require.NoError(t, os.Rename(temp, filepath.Join(root, StepName(5))))
	dir, _, _, err := Latest(root)
	require.NoError(t, err)
	require.Equal(t, float32(55), first(t, dir))
	saved(t, root, 6)
	require.NoError(t, Prune(root, 9))
	require.Equal(t, []string{StepName(4), StepName(5), StepName(6)}, names(t, root))

	// If the second rename fails, the old checkpoint moves back.
	root, temp = prepare()
	require.NoError(t, os.RemoveAll(temp))
	require.Error(t, replace(root, temp, StepName(5), never))
	require.Equal(t, float32(5), first(t, filepath.Join(root, StepName(5))))
}

func TestPrune(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	saved(t, root, 1, 2, 3, 4, 5)
	for _, other := range []string{"best", "step-last", "notes-000009"} {
		writeBytes(t, filepath.Join(root, other, "x"), nil)
	}
	writeBytes(t, filepath.Join(root, "step-000008"), nil) // a file
	require.NoError(t, os.Mkdir(filepath.Join(root, ".tmp-step-000009-1"), 0o755))
	require.NoError(t, Prune(root, 2, StepName(1), "best", "nowhere"))
	require.Equal(t, []string{"best", "notes-000009", StepName(1), StepName(4), StepName(5), "step-000008",
		"step-last"}, names(t, root))
	require.NoError(t, Prune(root, 5))
	require.NoError(t, os.Truncate(filepath.Join(root, StepName(5), modelName), 0))
	require.NoError(t, os.Truncate(filepath.Join(root, StepName(4), modelName), 0))
	require.NoError(t, Prune(root, 1))
	require.Equal(t, []string{"best", "notes-000009", StepName(1), StepName(5), "step-000008", "step-last"},
		names(t, root),
		"the newest, and the newest whole one")
}

func ExampleSave() {
	root, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	for step := 10; step <= 30; step += 10 {
		_, err := Save(root, StepName(step), func(dir string) error {
			weights := Source{Name: "w", Shape: []int{1}, Write: Filled(func(dst []float32) { dst[0] = 0.5 })}
			return WriteFile(filepath.Join(dir, "model.safetensors"), []Source{weights}, nil)
		})
		if err != nil {
			panic(err)
		}
	}
	if err := Prune(root, 2); err != nil {
		panic(err)
	}
	dir, step, skipped, err := Latest(root)
	fmt.Println(filepath.Base(dir), step, skipped, err)
	// Output: step-000030 30 [] <nil>
}

// Before returns the newest folder of an earlier step, also one that Verify rejects.
func TestBefore(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, _, err := Before(filepath.Join(root, "none"), 9)
	require.NoError(t, err)
	require.Empty(t, dir)
	for _, name := range []string{"step-000002", "step-000005", "failed-step-000006", "best"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o755))
	}
	for _, c := range []struct {
		step int
		want string
		at   int
	}{{2, "", 0}, {3, "step-000002", 2}, {5, "step-000002", 2}, {6, "step-000005", 5}, {9, "step-000005", 5}} {
		dir, at, err := Before(root, c.step)
		require.NoError(t, err)
		require.Equal(t, c.at, at)
		if c.want != "" {
			c.want = filepath.Join(root, c.want)
		}
		require.Equal(t, c.want, dir)
	}
}

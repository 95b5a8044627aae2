package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/report"
)

// smallDisk mounts a file system of the given size in bytes, or skips the test.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("needs to mount a file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fill fills a disk except for the given number of bytes.
func fill(t *testing.T, disk string, left int64) (filler string) {
	t.Helper()
	var stat syscall.Statfs_t
	require.NoError(t, syscall.Statfs(disk, &stat))
	filler = filepath.Join(disk, "filler")
	n := max(0, int64(stat.Bavail)*stat.Bsize-left)
	err := os.WriteFile(filler, make([]byte, n), 0o644)
	if !errors.Is(err, syscall.ENOSPC) {
		require.NoError(t, err)
	}
	return filler
}

// A full disk ends the run with a one-line error, whatever did not fit, and loses nothing:
// once there is space, the run resumes from its last checkpoint and ends in the same
// weights.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	want := weightsHash(t, trainTiny(t, dir, "whole"), 5)
	for _, left := range []int64{0, 1 << 12, 1 << 13, 1 << 14, 60 << 10, 150 << 10, 300 << 10} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			disk := smallDisk(t, 2<<20)
			run := filepath.Join(disk, "run")
			args := []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run), "-set",
				"checkpoint.keep=0"}
			code, _, errs := command(t, append(args, "-set", "run.steps=2")...)
			require.Zero(t, code, errs)
			written, err := os.ReadFile(filepath.Join(run, "run.toml"))
			require.NoError(t, err)

			filler := fill(t, disk, left)
			for range 2 { // the second try finds the first one's leftovers
				code, _, errs = command(t, append(args, "-resume")...)
				require.Equal(t, exitFailed, code, errs)
				lines := strings.Split(strings.TrimSpace(errs), "\n")
				require.Contains(t, lines[len(lines)-1], "no space left on device")
				require.Equal(t, 1, strings.Count(errs, "no space left on device"), errs)
				require.NotContains(t, errs, "goroutine ")
				for _, step := range []string{"step-000001", "step-000002"} {
					require.NoError(t, checkpoint.Verify(filepath.Join(run, "checkpoints", step)))
				}
				now, err := os.ReadFile(filepath.Join(run, "run.toml"))
				require.NoError(t, err)
				require.Contains(t, string(now), string(written[:20]), "the file is complete, old or new")
				require.Equal(t, strings.Count(string(written), "\n"), strings.Count(string(now), "\n"))
			}

			require.NoError(t, os.Remove(filler))
			code, _, errs = command(t, append(args, "-resume")...)
			require.Zero(t, code, errs)
			require.Equal(t, want, weightsHash(t, run, 5))
			steps, err := report.ReadMetrics(filepath.Join(run, report.MetricsFile))
			require.NoError(t, err)
			require.Len(t, steps, 5)
			hidden, err := filepath.Glob(filepath.Join(run, "*", ".tmp*"))
			require.NoError(t, err)
			require.Empty(t, hidden)
		})
	}
}

// A check says of a disk without space, or of one that is read-only, what the run says.
func TestBrokenRunsOnDisks(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := badRun(t)
	b := &breaker{dir: dir, out: filepath.Join(dir, "out")}
	write(t, dir, "demos.jsonl", `{"prompt":"1","response":"2"}`+"\n")
	full, closed := smallDisk(t, 1<<20), smallDisk(t, 1<<20)
	fill(t, full, 0)
	require.NoError(t, os.Mkdir(filepath.Join(closed, "run"), 0o755))
	require.NoError(t, syscall.Mount("", closed, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	b.both("full disk", "write to run.dir: write to "+full+": no space left on device",
		"run.dir="+filepath.Join(full, "new"))
	b.all[0].code, b.all[1].code = exitFailed, exitFailed
	b.both("read-only disk", "expected a writable folder: write to "+closed+": read-only file system",
		"run.dir="+filepath.Join(closed, "new"))
	b.both("folder on a read-only disk", "read-only file system", "run.dir="+filepath.Join(closed, "run"))
	b.add("train", "weights on a read-only disk", "inference.weights_dir: write to ",
		fmt.Sprintf(`inference={kind="vllm",endpoints=["http://127.0.0.1:1"],weights_dir=%q}`, closed))
	for _, broken := range b.all {
		t.Run(broken.verb+" "+broken.name, func(t *testing.T) { broken.run(t, dir, b.out) })
	}
}

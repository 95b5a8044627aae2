//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// replaceByPipe returns a copy of a folder in which the file name is a link to a pipe.
func replaceByPipe(t *testing.T, folder, name string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(folder)))
	path, pipe := filepath.Join(copied, name), filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, os.RemoveAll(path))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(pipe, path))
	return copied
}

// A pipe in place of a file of a model folder is refused. A verb that opened it would block for
// good.
func TestPipesInModelFolders(t *testing.T) {
	t.Parallel()
	dir := badRun(t)
	run, data := filepath.Join(dir, "run.toml"), filepath.Join(dir, "prompts.jsonl")
	groups := write(t, dir, "groups.jsonl",
		`{"step":1,"version":1,"prompt_id":"a","prompt":"1","prompt_ids":[2],"responses":[`+
			`{"text":"2","ids":[3],"logprobs":[-1],"reward":1,"finish":"length","version":1}]}`+"\n")
	verbs := map[string][]string{
		"serve":    {"serve", "-listen", "127.0.0.1:0", "-model"},
		"generate": {"generate", "-prompt-ids", "1,2", "-model"},
		"logprobs": {"logprobs", "-model"},
		"eval":     {"eval", "-data", data, "-model"},
		"train": {"train", run, "-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, "out")), "-set",
			"model.init.config=", "-set"},
		"check": {"check", run, "-set", "model.init.config=", "-set"},
		"replay": {"replay", "-rollouts", groups, "-run", dir, "-set", "rollout.prompts_per_step=1", "-set",
			"rollout.group_size=1",
			"-out", filepath.Join(dir, "stepped"), "-model"},
	}
	sharded := filepath.Join(dir, "sharded")
	require.NoError(t, os.CopyFS(sharded, os.DirFS(filepath.Join(dir, "m"))))
	weights := filepath.Join(sharded, "model.safetensors")
	require.NoError(t, os.Rename(weights, filepath.Join(sharded, "a.safetensors")))
	write(t, sharded, "model.safetensors.index.json", `{"weight_map":{"model.norm.weight":"a.safetensors"}}`)
	for _, file := range []struct{ folder, name string }{
		{"m", "model.safetensors"}, {"m", "config.json"}, {"m", "tokenizer_config.json"}, {"m", "tokenizer.json"},
		{"m", "generation_config.json"},
		{"m", "chat_template.jinja"}, {"sharded", "model.safetensors.index.json"}, {"sharded", "a.safetensors"},
	} {
		model := replaceByPipe(t, filepath.Join(dir, file.folder), file.name)
		for verb, args := range verbs {
			of := model
			if args[len(args)-1] == "-set" {
				of = fmt.Sprintf("model.path=%q", model)
			}
			code, _, errs := command(t, append(args[:len(args):len(args)], of)...)
			require.Equal(t, exitUsage, code, "%s %s: %s", verb, file.name, errs)
			require.Contains(t, errs, "is a pipe, expected a regular file", "%s %s", verb, file.name)
		}
	}
}

// A pipe in place of any file of a run's folder blocks neither its report nor its
// continuation.
func TestPipesInRunFolders(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	whole := filepath.Join(dir, "whole")
	train := func(run string, args ...string) (int, string) {
		code, _, errs := command(t,
			append([]string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run)},
				args...)...)
		return code, errs
	}
	code, errs := train(whole, "-set", "run.steps=1")
	require.Zero(t, code, errs)
	var names []string
	require.NoError(t, fs.WalkDir(os.DirFS(whole), ".", func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		if e.Type().IsRegular() {
			names = append(names, path)
		}
		return nil
	}))
	require.Contains(t, names, "trace.json")
	for _, name := range names {
		run := replaceByPipe(t, whole, name)
		code, _, errs := command(t, "report", run) // some files are not part of a report
		require.Contains(t, []int{0, exitFailed, exitUsage}, code, "%s: %s", name, errs)
		if strings.HasPrefix(name, "rollouts/") {
			continue // the run writes it and never reads it
		}
		code, errs = train(run, "-set", "run.steps=2", "-resume")
		require.Contains(t, []int{0, exitFailed, exitUsage}, code, "%s: %s", name, errs)
	}
}

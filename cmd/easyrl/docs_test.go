package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/docs"
)

// written returns the pages for users by path.
func written(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	pages := map[string]string{}
	for _, path := range append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[filepath.Base(path)+" of "+filepath.Base(filepath.Dir(path))] = string(data)
	}
	return pages
}

// In the pages, each command uses existing verbs and flags, sets existing keys to values
// of their types, and names shipped configurations. Each TOML file loads.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	commands, files := 0, 0
	for page, text := range written(t) {
		blocks, err := docs.Blocks(text)
		require.NoError(t, err, page)
		for _, b := range blocks {
			switch b.Language {
			case "toml":
				files++
				path := write(t, t.TempDir(), "run.toml", b.Text)
				_, err := configs.Load([]string{path}, nil)
				require.NoError(t, err, "%s:%d", page, b.Line)
			case "", "sh":
				for _, args := range commandsOf(b.Text) {
					commands++
					requireCommand(t, args, "%s:%d: easyrl %s", page, b.Line, strings.Join(args, " "))
				}
			}
		}
	}
	require.Greater(t, commands, 40)
	require.Greater(t, files, 3)
}

func requireCommand(t *testing.T, args []string, where ...any) {
	t.Helper()
	require.NotEmpty(t, args, where...)
	all := verbs(streams{})
	at := slices.IndexFunc(all, func(v cli.Verb) bool { return v.Name == args[0] })
	require.GreaterOrEqual(t, at, 0, where...)
	positional, err := cli.ParseFlags(all[at].Flags, args[1:])
	require.NoError(t, err, where...)
	if f := all[at].Flags.Lookup("set"); f != nil {
		_, err := configs.Load(nil, f.Value.(*cli.List).Values)
		require.NoError(t, err, where...)
	}
	if f := all[at].Flags.Lookup("sweep"); f != nil && f.Value.String() != "" {
		first, _, _ := strings.Cut(f.Value.String(), ",")
		_, err := configs.Load(nil, []string{first})
		require.NoError(t, err, where...)
	}
	for _, path := range positional {
		if strings.HasPrefix(path, "configs/") {
			require.FileExists(t, filepath.Join("..", "..", path), where...)
		}
	}
}

// commandsOf returns the arguments of each easyrl command in a shell script.
func commandsOf(text string) (all [][]string) {
	word := regexp.MustCompile(`^\s*("[^"]*"|'[^']*'|[^\s"'])+`)
	quoted := regexp.MustCompile(`"([^"]*)"|'([^']*)'`)
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		var args []string
		for {
			found := word.FindString(line)
			line = line[len(found):]
			arg := strings.TrimSpace(found)
			if arg == "" || slices.Contains([]string{"&", "|", "<", ">", ";", "&&"}, arg) || arg[0] == '#' {
				break
			}
			args = append(args, quoted.ReplaceAllString(arg, "$1$2"))
		}
		for len(args) > 0 && strings.Contains(args[0], "=") { // environment variables
			args = args[1:]
		}
		if len(args) > 1 && (args[0] == "easyrl" || args[0] == "bin/easyrl") {
			all = append(all, args[1:])
		}
	}
	return all
}

// Each key and verb that the text mentions exists.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile("`([^`\n]+)`")
	key := regexp.MustCompile(`^([a-z]+)\.[a-z_0-9.]+`)
	known := configs.Keys()
	names := []string{"COMMAND"}
	for _, v := range verbs(streams{}) {
		names = append(names, v.Name)
	}
	found := 0
	for page, text := range written(t) {
		for _, m := range code.FindAllStringSubmatch(docs.Prose(text), -1) {
			if words := strings.Fields(m[1]); words[0] == "easyrl" && len(words) > 1 {
				require.Contains(t, names, words[1], "%s: %s", page, m[1])
			}
			k := key.FindStringSubmatch(strings.TrimPrefix(m[1], "-set "))
			if k == nil || !slices.ContainsFunc(known,
				func(other string) bool { return strings.HasPrefix(other, k[1]+".") }) || isFile(k[0]) {
				continue
			}
			found++
			require.Contains(t, known, k[0], "%s: %s", page, m[1])
		}
	}
	require.Greater(t, found, 60)
}

// isFile reports whether a name is a file name rather than a key.
func isFile(name string) bool {
	return slices.Contains([]string{".go", ".toml", ".json", ".jsonl", ".md", ".safetensors"}, filepath.Ext(name))
}

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func read(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	require.NoError(t, err)
	return string(data)
}

// pages returns the documentation pages.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	all := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/NOTES.md"}
	for _, path := range found {
		all = append(all, "docs/"+filepath.Base(path))
	}
	return all
}

// anchors returns the anchors that GitHub generates for a page's headings.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for line := range strings.Lines(Prose(read(t, page))) {
		heading := strings.TrimLeft(line, "#")
		if heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		var name strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
			switch {
			case r == ' ':
				name.WriteByte('-')
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				name.WriteRune(r)
			}
		}
		all[name.String()] = true
	}
	return all
}

// Every link between pages, or from a page to a file or folder, resolves.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	found, led := 0, map[string]bool{"README.md": true}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(Prose(read(t, page)), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			found++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			_, err := os.Stat(filepath.Join(root, target))
			require.NoError(t, err, "%s links to %s", page, m[1])
			if anchor != "" {
				require.Contains(t, anchors(t, target), anchor, "%s links to %s", page, m[1])
			}
			led[target] = led[target] || target != page
		}
	}
	require.Greater(t, found, 20)
	for _, page := range pages(t) {
		require.True(t, led[page], "no page links to %s", page)
	}
}

// The index lists every page of docs/.
func TestIndex(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/README.md")
	for _, page := range pages(t) {
		if name, ok := strings.CutPrefix(page, "docs/"); ok && name != "README.md" {
			require.Contains(t, index, "]("+name+")", page)
		}
	}
}

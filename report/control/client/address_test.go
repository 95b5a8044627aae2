package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A token file must hold one word and be small.
func TestReadToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{
		"secret\n": "", "": "has no token", " \n": "has no token", "a b": "has no token", "a\nb": "has no token",
		"caf\xe9":                 "has no token",
		strings.Repeat("a", 5000): "has more than 4096 bytes",
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		token, err := ReadToken(path)
		if want != "" {
			require.ErrorContains(t, err, want, "%q", content)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "secret", token)
	}
	if _, err := os.Stat("/dev/zero"); err == nil {
		_, err := ReadToken("/dev/zero")
		require.ErrorContains(t, err, "is a device, expected a regular file")
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"http://127.0.0.1:7000": true, "https://trainer": true, "http://[::1]:7000/run": true, "": false,
		"trainer:7000": false, "ftp://a:1": false,
		"http://": false, "http://:7000": false, "http://a:99999": false, "http://[::1": false, "http://a:1/x?y": false,
		"http://a:1#x": false,
	} {
		_, err := Address(text)
		require.Equal(t, valid, err == nil, "%q: %v", text, err)
	}
}

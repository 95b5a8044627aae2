package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHidePasswords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`to = ['csv', 'mlflow=https://me:s3cr@t@host:5000/a']`: `to = ['csv', 'mlflow=https://me:***@host:5000/a']`,
		`url = "http://:token@host"`:                           `url = "http://:***@host"`,
		`["http://a:80", "http://b:81/x@y"] # me@home`:         `["http://a:80", "http://b:81/x@y"] # me@home`,
		"http://me@host:80\nhttp://me:a@b\n":                   "http://me@host:80\nhttp://me:***@b\n",
	} {
		require.Equal(t, want, HidePasswords(text))
	}
}

package secret

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHide(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`to = ['csv', 'mlflow=https://me:s3cr@t@host:5000/a']`:    `to = ['csv', 'mlflow=https://me:***@host:5000/a']`,
		`url = "http://:token@host"`:                              `url = "http://:***@host"`,
		`["http://a:80", "http://b:81/x@y"] # me@home`:            `["http://a:80", "http://b:81/x@y"] # me@home`,
		"http://me@host:80\nhttp://me:a@b\n":                      "http://me@host:80\nhttp://me:***@b\n",
		`["http://a/b?x=1&api_key=k&Token=t", "http://a?sig=s#"]`: `["http://a/b?x=1&api_key=***&Token=***", "http://a?sig=***#"]`,
		"data.answer_key=a, train.key=b, http://a/?tokens=3":      "data.answer_key=a, train.key=b, http://a/?tokens=3",
		"error: status 404":                                       "error: status 404",
	} {
		require.Equal(t, want, Hide(text))
		require.Equal(t, want, Hide(want), "once more")
		require.Equal(t, text != want && len(text) > 0, Hidden(want), want)
		require.False(t, Hidden(text), text)
	}
	require.False(t, Hidden("a *** b"))
	require.False(t, Hidden("http://a/***"))
}

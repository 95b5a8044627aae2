package secret

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHide(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`to = ['csv', 'mlflow=https://me:s3cr@t@host:5000/a']`: `to = ['csv', 'mlflow=https://***@host:5000/a']`,
		`url = "http://:token@host"`:                           `url = "http://***@host"`,
		"http://me@host:80\nhttp://me:a@b\n":                   "http://***@host:80\nhttp://***@b\n",
		`["http://a/b?x=1&api_key=k&T=t", "http://a?sig=s#"]`:  `["http://a/b?***", "http://a?***"]`,
		`Post "http://a:80/v1?q=hunter2": refused`:             `Post "http://a:80/v1?***": refused`,
		`HTTPS://Me:hunter2@Host/a#hunter2`:                    `HTTPS://***@Host/a#***`,
		`//me:hunter2@host/a`:                                  `//***@host/a`,
		`me:hunter2@host:8000`:                                 `***@host:8000`,
		`http://me:hunter2@[::1]:80/a`:                         `http://***@[::1]:80/a`,
		`http://me:hun/ter2@host/a`:                            `http://***@host/a`,
		`http://me:%zz@host:bad/a`:                             `http://***@host:bad/a`,
		`http%3A%2F%2Fme%3Ahunter2%40host`:                     `http%3A%2F%2F***`,
		`http://a:80,http://u:hunter2@b:81`:                    `http://a:80,http://***@b:81`,
		`http://a/b/sk-abcdefgh12345678`:                       `http://a/b/***`,
		`http://a/1b4e28ba-2fa1-11d2-883f-0016d3cca427/x`:      `http://a/***/x`,
		`https://api/bot123456:ABCdef/send`:                    `https://api/***/send`,
		`https://hooks/services/T01234567/B0123456`:            `https://hooks/services/***/***`,
		`--api-key=hunter2 --n 3`:                              `--api-key=*** --n 3`,
		`run --password hunter2 --n 3`:                         `run --password *** --n 3`,
		`["run", "--token", "hunter2", "a.py"]`:                `["run", "--token", "***", "a.py"]`,
		`["run", "--token=hunter2", "a.py"]`:                   `["run", "--token=***", "a.py"]`,
		`env OPENAI_API_KEY=hunter2 python3 a.py`:              `env OPENAI_API_KEY=*** python3 a.py`,
		`["curl", "-H", "Authorization: Bearer hunter2", "a"]`: `["curl", "-H", "Authorization: ***", "a"]`,
		`curl -u me:hunter2 host`:                              `curl -u *** host`,
		`mysql -pHunter2 db`:                                   `mysql -p*** db`,
		`{"api_key": "hunter2", "n": 1}`:                       `{"api_key": "***", "n": 1}`,
	} {
		require.Equal(t, want, Hide(text))
		require.Equal(t, want, Hide(want), "once more")
		require.True(t, Hidden(want), want)
		require.False(t, Hidden(text), text)
	}
}

func TestHarmlessTextStays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`["http://a:80", "http://b:81/x@y"] # me@home`,
		"data.answer_key=a, train.key=b, max_tokens=3",
		"error: status 404", "a *** b",
		"http://a/v1/models/Qwen3-0.6B-Instruct-2507",
		"http://a/DeepSeek-R1-Distill-Qwen-7B/Llama-3.2-1B-Instruct-Q4_K_M",
		"file:///srv/runs/2026-11-26_gsm8k-qwen3/run.toml",
		`["python3", "reward.py", "--mode", "strict", "--timeout", "5"]`,
		`--token-file /etc/token --max-tokens 5`,
		"dial tcp 127.0.0.1:80: connect: connection refused",
		"scikit: sk-learn-regression-model",
	} {
		require.Equal(t, text, Arguments(text))
	}
}

func TestArgumentsThatLookRandom(t *testing.T) {
	t.Parallel()
	require.Equal(t, `["run", "***", "/a/0123456789abcdef0123456789abcdef"]`,
		Arguments(`["run", "aB3dE5gH7jK9mN1pQ3sT", "/a/0123456789abcdef0123456789abcdef"]`))
}

package secret

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// secretRows are texts for Hide. The parts between « and » are secrets, which must not
// survive; the parts between ‹ and › must. Tokens with a known prefix have a · within it,
// which the test drops, so that scanners of repositories do not take them for real ones.
var secretRows = []string{
	// URLs: user information, query and fragment.
	`‹publish version 7 to https://›«ann:hunter2»@‹gpu7.example.com:8443/v1: connection refused›`,
	`‹http://›«s3cr3t»@‹10.0.0.3:8080/generate›`,
	`‹https://›«:onlypassword»@‹example.com›`,
	`‹https://›«ann:p@ss@word»@‹example.com/v1›`,
	`‹https://›«ann:p%40ss%2Fword»@‹example.com/v1›`,
	`‹https://example.com/v1/score?›«api_key=abc123»`,
	`‹https://example.com/v1/score?›«x=abc&y=ghi»`,
	`‹https://example.com/v1#›«access_token=eyJ0»`,
	`‹https://example.com/cb?›«code=4/P7q7W91#state»`,
	`"‹http://[2001:db8::7]:8080/v1?›«key=zz9»‹"›`,
	`‹HTTPS://›«ANN:HUNTER2»@‹EXAMPLE.COM/V1›`,
	`‹https:\/\/›«ann:hunter2»@‹example.com\/v1›`,
	`//«ann:hunter2»@‹example.com/v1›`,
	`‹ws://localhost:9000/socket?›«ticket=7f9»`,
	`‹(see https://example.com/a?›«sig=q1»‹) and retry›`,
	`‹<https://example.com/a?›«sig=q1»‹>›`,
	// Paths that hold secrets.
	`‹https://hooks.slack.com/services/›«T02AB3CDE/B04FG5HIJ/x8Jw2LkPq0Zr7TnVb4YcMd1s»`,
	`‹https://discord.com/api/webhooks/›«1098765432109876543/kT9_xQ2w-LmZp4vNcR8yHsJd0BfGaEuWoIi»`,
	`‹https://api.telegram.org/›«bot987654321:AAHkq3Xw9PzL0vYtRb7NmJcEfUi2SdGoQw1»‹/sendMessage›`,
	`‹https://acme.webhook.office.com/webhookb2/›«0f8fad5b-d9cb-469f-a165-70867728950e@` +
		`7c9e6679-7425-40de-944b-e07fc1f90ae7»/IncomingWebhook/«4bf92f3577b34da6a3ce929d0e0e4736/` +
		`3fa85f64-5717-4562-b3fc-2c963f66afa6»`,
	`‹https://hooks.zapier.com/hooks/catch/›«1234567/b8k2j5q»`,
	`‹https://mainnet.infura.io/v3/›«9aa3d95b3bc440fa88ea12eaa4456161»`,
	`‹https://example.com/t/›«vR7kQ2mXz9LpW4tNb8Yc»‹/score›`,
	// Signed URLs.
	`‹https://bucket.s3.amazonaws.com/model.safetensors?›«X-Amz-Credential=AKIA·IOSFODNN7EXAMPLE%2F20261127&` +
		`X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404»`,
	`‹https://storage.googleapis.com/bucket/train.jsonl?›«GoogleAccessId=x@y.iam&Signature=Yf3%2Bk9»`,
	`‹https://acct.blob.core.windows.net/data/train.jsonl?›«sv=2024-11-04&sig=Zk3vQ%2F9pLm%3D»`,
	// Databases and queues.
	`‹postgres://›«easyrl:pgpass1»@‹db.internal:5432/runs?›«sslmode=disable»`,
	`‹postgresql+psycopg2://›«easyrl:pgpass1»@‹db.internal/runs›`,
	`‹redis://›«:redispass»@‹cache:6379/0›`,
	`‹mongodb+srv://›«app:m0ngo»@‹cluster0.abcde.mongodb.net/runs›`,
	`‹amqps://›«guest:rabbit»@‹mq:5671/vhost›`,
	`‹mysql://›«root:toor!»@‹db/runs›`,
	`‹jdbc:postgresql://db/runs?›«user=ann&password=pw1»`,
	`‹s3://bucket/data?›«versionId=abc»`,
	`host=db ‹user=ann› password=«pgpass1» dbname=runs`,
	`Server=tcp:db;Database=runs;User ID=ann;Password=«Adm1n!»;‹Encrypt=true›`,
	// Proxies and other variables of the environment.
	`HTTPS_PROXY=‹http://›«corp:pr0xy»@‹proxy:3128›`,
	`OPENAI_API_KEY=«whatever-works»`,
	`export ANTHROPIC_API_KEY="«my key with spaces»"`,
	`env HF_TOKEN=«aaa111» ‹python3 score.py›`,
	`AWS_SECRET_ACCESS_KEY='«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»'`,
	`MLFLOW_TRACKING_PASSWORD=«letmein»; ‹MLFLOW_TRACKING_URI›=http://mlflow:5000`,
	`WANDB_API_KEY: «0123456789abcdef0123456789abcdef01234567»`,
	`‹set "DB_PASSWD=›«geheim»"`,
	`$env:GITHUB_TOKEN = "«abc-def»"`,
	`PGPASSWORD=«x» ‹psql -h db›`,
	`db_pwd=«geheim123»`,
	// TOML.
	`password = "«correct horse battery staple»"`,
	`api_key = '«abc»' ‹# of the grader›`,
	`‹command = ["python3", "grade.py", "--api-key",› "«abc123»"‹]›`,
	`‹command = ["python3", "grade.py",› "--api-key=«abc123»"‹]›`,
	`‹env = { HOME = "/root",› OPENAI_API_KEY = "«abc123»"‹ }›`,
	"‹[reward.headers]›\nAuthorization = \"«Bearer abc123»\"\n‹Accept = \"text/plain\"›",
	`"X-Api-Key" = "«abc123»"`,
	`reward.token = "«abc»"`,
	"‹token = \"\"\"›\n«line one\nline two»\n\"\"\"\n‹steps = 3›",
	`api_tokens = ["«abc»", "«def»"]`,
	`password = "«pa\"ss»" ‹# end›`,
	// JSON.
	`{"‹model›":"‹qwen›","api_key":"«abc123»","‹n›":4}`,
	`{"password": "«a\"b\\c»", "‹steps›": 3}`,
	`{\"api_key\":\"«abc123»\",\"‹n›\":4}`,
	`{"auth":{"token":"«abc»"},"‹n›":1}`,
	`{"clientSecret": "«abc»", "accessToken": "«def»"}`,
	`{"headers":{"Authorization":"Bearer «abc123»"}}`,
	// Headers.
	`Authorization: Basic «YW5uOmh1bnRlcjI=»`,
	`Authorization: Bearer «abc.def-ghi»`,
	`authorization: bearer «abc»`,
	`Authorization: Digest username="ann", realm="r", nonce="«dcd98b7102dd»", ` +
		`response="«6629fae49393a05397450978507c4ef1»"`,
	`Proxy-Authorization: Basic «YW5uOmh1bnRlcjI=»`,
	"‹Host: example.com›\r\nCookie: session=«8fa7»; csrf=«91bc»\r\n‹Accept: */*›",
	`Set-Cookie: sid=«31d4d96e407aad42»; Path=/; HttpOnly`,
	`X-Api-Key: «abc»`,
	`x-auth-token: «abc»`,
	`‹server answered 401 to› Authorization: Token «abc123»`,
	`Ocp-Apim-Subscription-Key: «abc123»`,
	// Tokens by their form.
	`‹the key› «sk·-proj-AbCdEf123456GhIjKl7890MnOpQr» ‹is not valid›`,
	`‹incorrect API key provided:› «sk·-ant-api03-Zx9Wv8Ut7Sr6Qp5On4Ml3Kj2Ih1Gf0»`,
	`‹clone failed:› «hf·_AbCdEfGhIjKlMnOpQrStUvWxYz012345»`,
	`«ghp·_0123456789abcdefghijABCDEFGHIJ456789»`,
	`«github·_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789»`,
	`«glpat·-AbCdEf-GhIjKlMnOp1234»`,
	`‹access key› «AKIA·Z7Q2M4X6C8V0B1N3» ‹denied›`,
	`«AIza·SyD3x4mpl3K3yW1thTh1rtyN1n3Ch4rs_-x»`,
	`«xoxb·-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx»`,
	`«npm·_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789»`,
	`«sk·_live_51HxAbCdEfGhIjKlMnOpQrSt»`,
	`«SG·.AbCdEfGhIjKlMnOpQrStUv.AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEfG»`,
	`‹jwt› «eyJhbGciOiJIUzI1NiJ9·.eyJzdWIiOiJhbm4ifQ.Sfl-KxwRJSMeKKF2QT4fwp_MeJf36POk6yJV» ‹expired›`,
	"‹key:›\n-----BEGIN RSA PRIVATE· KEY-----«" +
		"\nMIIEpAIBAAKCAQEA7x\nq1w2e3r4\n»-----END RSA PRIVATE· KEY-----\n‹end›",
	`"-----BEGIN PRIVATE· KEY-----\n«MIIEvQIBADANBgkqhkiG9w0BAQ\nabc=»\n-----END PRIVATE· KEY-----\n"`,
	`«ya29·.A0ARrdaM8abcdefghijklmnopqrstuvwxyz0123»`,
	`«dckr·_pat_AbCdEfGhIjKlMnOpQrStUvWxYz0»`,
	// Percent-encoding, case and Unicode.
	`‹redirect=›https%3A%2F%2F«ann%3Ahunter2»%40example.com`,
	`Password: «naïve-пароль-密码» ‹rejected›`,
	`‹пароль at https://›«анна:тайна»@‹пример.рф/путь›`,
	`PASSWORD="«Ünïcödé wört»"`,
	`Api-Key = «ABC»`,
}

// commandRows are texts for Arguments, marked like secretRows.
var commandRows = []string{
	`["‹python3›", "‹/opt/graders/grade.py›", "--token", "«abc»"]`,
	`["‹curl›", "-H", "‹Authorization›: Bearer «abc123»", "‹https://example.com/score›"]`,
	`["sh", "-c", "OPENAI_API_KEY=«abc» ‹python3 grade.py›"]`,
	`["python3", "grade.py", "«kQ8zX2vLm7PwT4rNb9Yc»"]`,
	`["python3", "grade.py", "--salt=«kQ8zX2vLm7PwT4rNb9Yc»"]`,
	`‹curl -s› -u ann:«hunter2» ‹https://example.com/score›`,
	`curl --user 'ann:«hunter two»' ‹https://example.com/score›`,
	`curl -u ann:«271828» ‹https://example.com›`,
	`curl -uann:«hunter2» ‹https://example.com›`,
	`curl --header="X-Api-Key: «abc»" ‹https://example.com›`,
	`curl -H 'Authorization: Bearer «abc»' ‹https://example.com›`,
	`curl -H"Authorization: token «abc»" ‹https://example.com›`,
	`curl -b 'session=«8fa7»' ‹https://example.com›`,
	`curl --cookie session=«8fa7» ‹https://example.com›`,
	`curl --data 'grant_type=password&password=«geheim»' ‹https://example.com›`,
	`curl -d '{"api_key":"«abc»"}' ‹https://example.com›`,
	`curl --proxy-user corp:«pr0xy» ‹https://example.com›`,
	`curl --oauth2-bearer «abc» ‹https://example.com›`,
	`wget --password=«geheim» --user=ann ‹https://example.com›`,
	`wget --http-password «geheim» ‹https://example.com›`,
	`‹kubectl› --token=«abc» ‹get pods›`,
	`kubectl create secret generic x --from-literal=password=«geheim»`,
	`‹docker run› -e OPENAI_API_KEY=«abc» ‹grader:latest›`,
	`docker run --env=HF_TOKEN=«abc» ‹grader:latest›`,
	`docker login -u ann -p «geheim» ‹ghcr.io›`,
	`sshpass -p «geheim» ‹ssh gpu7 nvidia-smi›`,
	`sshpass -p«geheim» ‹ssh gpu7›`,
	`mysql -u root -p«geheim» ‹runs›`,
	`mysql --password=«geheim» ‹runs›`,
	`psql "host=db password=«geheim» ‹dbname=runs›"`,
	`psql ‹postgresql://›«ann:geheim»@‹db/runs›`,
	`redis-cli -a «geheim» ‹ping›`,
	`‹mlflow server --backend-store-uri› mysql+pymysql://«ann:geheim»@‹db/mlflow›`,
	`openssl enc -pass pass:«geheim» ‹-in x›`,
	`gpg --passphrase «geheim» ‹-d x.gpg›`,
	`easyrl train run.toml -set inference.token=«abc» ‹-resume›`,
	`easyrl train run.toml -set 'reward.command=["grade","--key","«abc»"]'`,
	`sh -c 'export TOKEN="«a b c»"; ‹exec python3 grade.py›'`,
	`sh -c "curl -H \"Authorization: Bearer «abc»\" ‹https://example.com›"`,
	`‹python3 grade.py› --api-key "«abc def»" ‹--steps 3›`,
	`python3 grade.py --api-key «ab»'«cd ef»'"«gh»" ‹--steps 3›`,
	`python3 grade.py --API_KEY=«abc» ‹--steps 3›`,
	`python3 grade.py -token «abc» ‹-steps 3›`,
	`rclone --config-pass=«geheim» ‹ls x:›`,
	`aws configure set aws_secret_access_key «geheim»`,
	`npm config set //registry.npmjs.org/:_authToken=«abc»`,
	`az login --service-principal -u app -p «geheim» ‹--tenant t›`,
}

// harmlessRows are texts that Hide and Arguments return unchanged.
var harmlessRows = []string{
	`model.path = "Qwen/Qwen2.5-Math-1.5B-Instruct"`,
	`deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B`,
	`meta-llama/Llama-3.2-1B-Instruct at revision 9213176726f574b556790deb65791e0c5aa438b6`,
	`/home/ann/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/` +
		`c1899de289a04d12100db370d81485cdf75e47ca/config.json`,
	`runs/550e8400-e29b-41d4-a716-446655440000/report.html`,
	`runs/20261127-193954-9f86d081/checkpoints/step-000020`,
	`weights sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
	`"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`,
	`ghcr.io/easyrl/easyrl@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
	`https://github.com/easyrl/easyrl/commit/5902a5f9d1c8e7b6a5f4e3d2c1b0a9f8e7d6c5b4`,
	`https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/model-00001-of-00002.safetensors`,
	`file:///home/ann/models/qwen/config.json`,
	`http://gpu7.example.com:8080/v1/chat/completions`,
	`publish version 7 to http://10.0.0.3:8080: connection refused`,
	`listening on http://[::1]:8080`,
	`dial tcp [2001:db8::1]:443: i/o timeout`,
	`http://[fe80::1%25eth0]:8080/v1`,
	`easyrl serve --token-file /run/secrets/easyrl-token`,
	`python3 grade.py --max-tokens 4096 --temperature=0.7`,
	`rollout.max_tokens = 1024`,
	`max_new_tokens=256, min_tokens: 4, tokens_per_second = 812.5`,
	`data.answer_key = "answer"`,
	`-set data.prompt_key=question -set data.answer_key=solution`,
	`tokenizer = "models/qwen/tokenizer.json"`,
	`pad_token = "<|endoftext|>", eos_token_id: 151643`,
	`loss.aggregate = "token-mean"`,
	`stop = ["<|im_end|>", "</s>"]`,
	`pass@8: 0.43, pass@1=0.31`,
	`step 12: reward 0.532, kl 1.2e-04, 4096 tokens, 3.1 s`,
	`12 tokens: 3 ms`,
	`2026-11-27T19:39:54.123456Z`,
	`# the tokens of a prompt, and the key of its answer`,
	"every = 10 # steps: see https://example.com/docs/checkpoints",
	`answer = '\\boxed\{([^{}]*)\}'`,
	`(?im)^(?:answer|result)\s*[:=]\s*([-+]?\d+(?:\.\d+)?)\s*$`,
	`the answer is $\frac{1}{2}\cdot\sqrt{x^2+y^2}$, \text{so } \boxed{42}`,
	`unknown key reward.komand, expected reward.command`,
	`train.jsonl:1 has no prompt field; it has "label" and "text"`,
	`unexpected token '}' at line 3`,
	`invalid character 'x' after object key:value pair`,
	`sort_key = "score"`,
	`keyboard = "us", monkey=3, bypass: true`,
	`author: Ann Example <ann@example.com>`,
	`git@github.com:easyrl/easyrl.git`,
	`C:\Users\ann\models\qwen\tokenizer.json`,
	`x = a // b; y = c //d`,
	`loss=0.693 entropy=1.23 lr=1e-06 grad_norm=0.51`,
	`the token in --token-file is empty, expected at least one character`,
	`password is required`,
	`instance http://gpu7:8080 asks for a token: set inference.token_file`,
	`f(x) = 3**2 + **kwargs`,
	`["python3", "/opt/graders/math_verify/grade.py", "--config", "configs/gsm8k-qwen3.toml"]`,
	`["bash", "-c", "cd examples/reward && ./run.sh --workers 8"]`,
	`docker run --rm --network none -v /data:/data grader:1.2.3`,
	`ssh -p 2222 ann@gpu7.example.com nvidia-smi`,
	`mkdir -p runs/largest && cp -u a b`,
	`torchrun --nproc-per-node 8 --rdzv-endpoint=gpu0:29500 worker.py`,
	`CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=4 python3 grade.py`,
	`日本語のモデル: 答えは 42 です`,
	``,
}

// proseRows are texts that Hide returns unchanged. As commands they would mean something else.
var proseRows = []string{
	`reward.env = ["OPENAI_API_KEY", "HF_TOKEN"]`,
	`set OPENAI_API_KEY in the environment`,
	`*** this is a heading ***`,
	`a *** b`,
}

// unmarked returns a row's text, its secrets and what must survive.
func unmarked(row string) (text string, secrets, keeps []string) {
	row = strings.ReplaceAll(row, "·", "")
	between := func(open, end string) (parts []string) {
		for _, part := range strings.Split(row, open)[1:] {
			part, _, _ = strings.Cut(part, end)
			parts = append(parts, part)
		}
		return parts
	}
	secrets, keeps = between("«", "»"), between("‹", "›")
	return strings.NewReplacer("«", "", "»", "", "‹", "", "›", "").Replace(row), secrets, keeps
}

// faults returns what is wrong with the mask of a row.
func faults(row, shown string) (faults []string) {
	_, _, keeps := unmarked(row)
	rest := shown
	for _, keep := range keeps {
		at := strings.Index(rest, keep)
		if at < 0 {
			faults = append(faults, "loses "+keep)
			continue
		}
		rest = rest[:at] + "\x00" + rest[at+len(keep):]
	}
	return append(faults, shows(row, rest)...)
}

// shows returns the secrets of a row, or words of them, that shown has.
func shows(row, shown string) (words []string) {
	_, secrets, _ := unmarked(row)
	for _, secret := range secrets {
		for _, word := range append(strings.FieldsFunc(secret, notLetterOrDigit), secret) {
			if (len(word) > 3 || word == secret) && strings.Contains(shown, word) {
				words = append(words, "shows "+word)
			}
		}
	}
	return words
}

func notLetterOrDigit(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

func TestSecretRows(t *testing.T) {
	for _, row := range secretRows {
		text, _, _ := unmarked(row)
		shown := Hide(text)
		require.Empty(t, faults(row, shown), "%s\n%s", text, shown)
		require.Equal(t, shown, Hide(shown))
		require.True(t, Hidden(shown), shown)
		require.Empty(t, faults(row, Arguments(text)), text)
	}
	for _, row := range append(slices.Clone(commandRows), moreRows...) {
		text, _, _ := unmarked(row)
		shown := Arguments(text)
		require.Empty(t, faults(row, shown), "%s\n%s", text, shown)
		require.Equal(t, shown, Arguments(shown))
		require.True(t, Hidden(shown), shown)
	}
}

func TestHarmlessRows(t *testing.T) {
	for _, text := range append(slices.Clone(harmlessRows), moreHarmless...) {
		require.Equal(t, text, Hide(text))
		require.Equal(t, text, Arguments(text))
		require.False(t, Hidden(text), text)
	}
	for _, text := range proseRows {
		require.Equal(t, text, Hide(text))
	}
}

// A masked value of run.toml must remain TOML: strings in a list keep their quotes.
func TestQuotedRows(t *testing.T) {
	for _, row := range slices.Concat(secretRows, commandRows, moreRows) {
		text, _, _ := unmarked(row)
		for range 2 {
			var list strings.Builder
			out := json.NewEncoder(&list)
			out.SetEscapeHTML(false)
			require.NoError(t, out.Encode([]string{"sh", "-c", text, "end"}))
			shown := Arguments(list.String())
			var words []string
			require.NoError(t, json.Unmarshal([]byte(shown), &words), "%s\n%s", list.String(), shown)
			require.Len(t, words, 4, shown)
			require.Equal(t, "end", words[3], "%s\n%s", list.String(), shown)
			require.Empty(t, shows(row, shown), "%s\n%s", list.String(), shown)
			text = list.String() // quoted once more
		}
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/model/arch"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/report/control"
)

// console is a standard error that signals each write.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// until waits for a match of pattern and returns its last group.
func (c *console) until(t *testing.T, pattern string) string {
	t.Helper()
	for {
		text := c.String()
		if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
			return m[len(m)-1]
		}
		select {
		case <-c.more:
		case <-t.Context().Done():
			require.Fail(t, "no "+pattern, text)
		}
	}
}

// serveFolder runs easyrl serve and returns its address, its console, and a function that
// stops it as a signal would and returns its status.
func serveFolder(t *testing.T, args ...string) (root string, said *console, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	said = &console{more: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		status := execute(ctx, streams{in: strings.NewReader(""), out: io.Discard, err: said},
			append([]string{"serve", "-listen", "127.0.0.1:0"}, args...))
		_, _ = said.Write([]byte("ended\n"))
		code <- status
	}()
	t.Cleanup(cancel)
	root = said.until(t, `at (http://\S+)|ended`)
	require.NotEmpty(t, root, said.String())
	return root, said, func() int {
		cancel()
		return <-code
	}
}

// ask sends a request and decodes its JSON answer.
func ask(t *testing.T, method, url, token string, body io.Reader, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, out), "%s", text)
	return resp.StatusCode
}

// answered holds a server's responses to the prompt 3, 4, 5.
type answered struct {
	Version int64 `json:"weight_version"`
	Choices []struct {
		IDs      []int32 `json:"token_ids"`
		Text     string  `json:"text"`
		Logprobs struct {
			Values []float32 `json:"token_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
	Error struct{ Type, Message string } `json:"error"`
}

func askCompletions(t *testing.T, root, more string) (answered, int) {
	t.Helper()
	var a answered
	code := ask(t, http.MethodPost, root+"/v1/completions", "secret", strings.NewReader(
		`{"prompt":[3,4,5],"n":3,"seed":18446744073709551615,"max_tokens":20,"logprobs":0,`+
			`"return_token_ids":true,"ignore_eos":true`+more+`}`), &a)
	return a, code
}

// requireGenerates compares responses with those of easyrl generate.
func requireGenerates(t *testing.T, model string, a answered) {
	t.Helper()
	code, out, errs := command(t, "generate", "-model", model, "-prompt-ids", "3,4,5", "-n", "3", "-seed",
		"18446744073709551615",
		"-max-tokens", "20", "-ignore-eos", "-json")
	require.Zero(t, code, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, a.Choices, len(lines))
	for i, line := range lines {
		var want struct {
			Text     string
			IDs      []int32
			Logprobs []float32
		}
		require.NoError(t, json.Unmarshal([]byte(line), &want))
		require.Equal(t, want.IDs, a.Choices[i].IDs)
		require.Equal(t, want.Text, a.Choices[i].Text)
		require.Equal(t, want.Logprobs, a.Choices[i].Logprobs.Values, "bit-identical log-probabilities")
	}
}

func initTiny(t *testing.T, dir, name string, seed int) string {
	t.Helper()
	out := filepath.Join(dir, name)
	code, _, errs := command(t, "init", "-config", filepath.Join(dir, "config.json"), "-out", out, "-seed",
		fmt.Sprint(seed))
	require.Zero(t, code, errs)
	return out
}

// A served folder samples what the embedded engine does, before and after a weight update.
// Incomplete weights change nothing.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	first, second, third := initTiny(t, dir, "first", 1), initTiny(t, dir, "second", 2), initTiny(t, dir, "third", 3)
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	root, said, stop := serveFolder(t, "-model", first, "-token-file", token, "-max-running", "2")

	a, code := askCompletions(t, root, "")
	require.Equal(t, http.StatusOK, code, a.Error)
	require.Zero(t, a.Version)
	requireGenerates(t, first, a)

	body, err := os.ReadFile(filepath.Join(second, "model.safetensors"))
	require.NoError(t, err)
	var put, held struct {
		Version  int64
		Checksum string
	}
	require.Equal(t, http.StatusOK, ask(t, http.MethodPut, root+"/v1/weights?version=5", "secret",
		bytes.NewReader(body), &put))
	require.EqualValues(t, 5, put.Version)
	a, code = askCompletions(t, root, `,"weight_version":5`)
	require.Equal(t, http.StatusOK, code, a.Error)
	require.EqualValues(t, 5, a.Version)
	requireGenerates(t, second, a)

	var refused answered
	require.Equal(t, http.StatusBadRequest,
		ask(t, http.MethodPut, root+"/v1/weights?version=6", "secret", bytes.NewReader(body[:len(body)-8]), &refused))
	require.NotEmpty(t, refused.Error.Message)
	require.Equal(t, http.StatusOK, ask(t, http.MethodGet, root+"/v1/weights", "secret", http.NoBody, &held))
	require.Equal(t, put, held)
	a, _ = askCompletions(t, root, "")
	requireGenerates(t, second, a)
	a, code = askCompletions(t, root, `,"weight_version":6`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "stale_weights", a.Error.Type)

	path := filepath.Join(third, "model.safetensors")
	for version := 7; version < 10; version++ { // the two sets of weights swap
		require.Equal(t, http.StatusOK, ask(t, http.MethodPut,
			fmt.Sprintf("%s/v1/weights?version=%d&path=%s", root, version, path), "secret", http.NoBody, &put))
		a, _ = askCompletions(t, root, "")
		require.EqualValues(t, version, a.Version)
		requireGenerates(t, third, a)
	}
	require.Equal(t, http.StatusUnauthorized, ask(t, http.MethodGet, root+"/v1/weights", "", http.NoBody, &refused))
	require.Equal(t, exitDone, stop(), said.String())
}

// onPaper is a fake fleet with one member.
type onPaper struct {
	mu    sync.Mutex
	calls []string
	all   []control.Instance
}

func (r *onPaper) called(call string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call != "" {
		r.calls = append(r.calls, call)
	}
	return slices.Clone(r.calls)
}

// List implements control.Instances.
func (r *onPaper) List() []control.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Add implements control.Instances.
func (r *onPaper) Add(_ context.Context, url, kind string) (control.Instance, error) {
	r.called("add " + kind + " " + url)
	m := control.Instance{ID: "host/1", State: "HEALTHY"}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = []control.Instance{m}
	return m, nil
}

// Drain implements control.Instances.
func (r *onPaper) Drain(id string) (control.Instance, error) {
	r.called("drain " + id)
	return control.Instance{ID: id, State: "DRAINING"}, nil
}

// Evicted implements control.Instances.
func (r *onPaper) Evicted(string) bool { return false }

// Removed implements control.Instances.
func (r *onPaper) Removed(string) bool { return false }

// Remove implements control.Instances.
func (r *onPaper) Remove(_ context.Context, id string) error {
	r.called("remove " + id)
	return nil
}

// controlFor serves a trainer's control address without a run.
func controlFor(t *testing.T) (c *control.Server, url string) {
	t.Helper()
	c, err := control.New("127.0.0.1:0", "", t.TempDir())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, "http://" + c.Addr()
}

// An instance joins once the trainer accepts it. At its end it first stops receiving
// requests, then leaves.
func TestServeJoins(t *testing.T) {
	t.Parallel()
	control, trainer := controlFor(t)
	root, said, stop := serveFolder(t, "-simulate", fast, "-join", trainer)
	said.until(t, "the run has not started its instances yet; retrying")
	r := &onPaper{}
	control.Serve(r, nil)
	said.until(t, `joined \S+ as host/1`)
	require.Equal(t, exitDone, stop(), said.String())
	require.Equal(t, []string{"add easyrl " + root, "drain host/1", "remove host/1"}, r.called(""))
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	model := initTiny(t, dir, "m", 1)
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close() //nolint:errcheck // only a test
	bare := filepath.Join(dir, "bare")
	require.NoError(t, os.CopyFS(bare, os.DirFS(model)))
	require.NoError(t, os.Remove(filepath.Join(bare, "model.safetensors")))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"taken":      {[]string{"-model", bare, "-listen", taken.Addr().String()}, "address already in use"},
		"no weights": {[]string{"-model", bare, "-listen", "127.0.0.1:0"}, "no model.safetensors"},
		"no model":   {nil, "expected -model DIR or -simulate SPEC"},
		"no folder":  {[]string{"-model", filepath.Join(dir, "none")}, "none does not exist"},
		"beyond":     {[]string{"-model", model, "-listen", "0.0.0.0:0"}, "beyond loopback"},
		"no port": {[]string{"-model", model, "-listen", "localhost"},
			`listen "localhost", expected host:port`},
		"no room":     {[]string{"-model", model, "-max-running", "0"}, "-max-running is 0"},
		"empty token": {[]string{"-model", model, "-token-file", empty}, "has no token"},
		"join no port": {[]string{"-model", model, "-join", "http://trainer:99999"},
			`-join is "http://trainer:99999", expected http://HOST:PORT`},
		"join no URL": {[]string{"-model", model, "-join", "trainer:7070"},
			`-join is "trainer:7070", expected http://HOST:PORT`},
		"no drain timeout": {[]string{"-model", model, "-drain-timeout", "0s"}, "drain timeout 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := command(t, append([]string{"serve"}, test.args...)...)
			require.Equal(t, exitUsage, code, errs)
			require.Contains(t, errs, test.want)
			require.Equal(t, 1, strings.Count(errs, "\n"), errs)
			require.Empty(t, out)
		})
	}
}

// A fingerprint depends only on what affects the computation.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	parse := func(more string) string {
		c, err := arch.ParseConfig(
			[]byte(
				`{"model_type":"llama","hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,` +
					`"num_attention_heads":2,` +
					more + `"vocab_size":53,"rms_norm_eps":1e-5}`))
		require.NoError(t, err)
		return folder.Fingerprint(c)
	}
	same := parse(`"max_position_embeddings":64,`)
	require.Equal(t, same, parse(`"max_position_embeddings":32,"initializer_range":0.5,"eos_token_id":7,`))
	for _, other := range []string{`"rope_theta":500,`, `"num_key_value_heads":1,`, `"tie_word_embeddings":true,`,
		`"rope_scaling":{"rope_type":"linear","factor":2},`} {
		require.NotEqual(t, same, parse(`"max_position_embeddings":64,`+other), other)
	}
}

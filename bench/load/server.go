package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// server is the server under test.
type server struct {
	addr    string // host:port
	token   string
	weights [][]byte // two safetensors files, the first for version 0; empty if the server keeps its own
	client  *http.Client

	// Only for a server started here.
	dir     string
	process *exec.Cmd
	ended   chan error

	mu  sync.Mutex
	log []string // the last lines of its output
}

// open uses the named server, or creates a model and serves it.
func (o *options) open(ctx context.Context) (s *server, err error) {
	s = &server{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{}}}
	if o.url != "" {
		u, err := url.Parse(o.url)
		if err != nil || u.Scheme != "http" || u.Port() == "" {
			return nil, fmt.Errorf("-url is %q, expected http://HOST:PORT", o.url)
		}
		s.addr = u.Host
		if o.tokenFile != "" {
			data, err := os.ReadFile(o.tokenFile)
			if err != nil {
				return nil, err
			}
			s.token = strings.TrimSpace(string(data))
		}
		return s, nil
	}
	if s.dir, err = os.MkdirTemp("", "easyrl-load-*"); err != nil {
		return nil, err
	}
	if err := s.start(ctx, o.binary); err != nil {
		s.kill()
		return nil, fmt.Errorf("%w%s", err, s.said())
	}
	return s, nil
}

// files returns the model's files except its weights: a token is a character.
func files() map[string]string {
	return map[string]string{
		"config.json": `{"model_type":"qwen3","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
			"num_key_value_heads":2,"head_dim":16,"vocab_size":48,"max_position_embeddings":512,"rms_norm_eps":1e-6,"rope_theta":10000,
			"hidden_act":"silu","tie_word_embeddings":true,"eos_token_id":1,"initializer_range":0.2}`,
		"tokenizer_config.json": `{"char_ords":[48,49,50,51,52,53,54,55,56,57,97,98,99,100,101,102,103,104,105,106,107,108,109,110,32,46,63,58],"model_max_length":512}`,
		"chat_template.jinja":   `{% for m in messages %}{{ m.role }}: {{ m.content }}. {% endfor %}`,
		"token":                 "loadloadload\n",
	}
}

// start builds the command, creates two models of one shape and serves the first.
func (s *server) start(ctx context.Context, binary string) error {
	at := func(name string) string { return filepath.Join(s.dir, name) }
	for name, text := range files() {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	call := func(name string, args ...string) error {
		if text, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
		}
		return nil
	}
	if binary == "" {
		binary = at("easyrl")
		if err := call("go", "build", "-o", binary, "github.com/easyrl/easyrl/cmd/easyrl"); err != nil {
			return err
		}
	}
	for i, name := range []string{"first", "second"} {
		if err := call(binary, "init", "-config", at("config.json"), "-out", at(name), "-seed", fmt.Sprint(i+1)); err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(at(name), "model.safetensors"))
		if err != nil {
			return err
		}
		s.weights = append(s.weights, data)
	}
	s.token = strings.TrimSpace(files()["token"])
	return s.serve(exec.Command(binary, "serve", "-model", at("first"), "-listen", "127.0.0.1:0", "-token-file", at("token"))) //nolint:noctx // stopped by a signal
}

// serve starts the process and waits for its address.
func (s *server) serve(cmd *exec.Cmd) error {
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process, s.ended = cmd, make(chan error, 1)
	addr := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(pipe)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if _, at, ok := strings.Cut(lines.Text(), " at http://"); ok && len(addr) == 0 {
				addr <- strings.Fields(at)[0]
			}
			s.mu.Lock()
			s.log = append(s.log[max(0, len(s.log)-200):], lines.Text())
			s.mu.Unlock()
		}
		s.ended <- cmd.Wait()
	}()
	select {
	case s.addr = <-addr:
		return nil
	case err := <-s.ended:
		s.process = nil
		return fmt.Errorf("easyrl serve exited: %w", errors.Join(errors.New("it did not start to listen"), err))
	}
}

// said returns the end of the process's output, for an error.
func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.log) == 0 {
		return ""
	}
	return "\nthe server wrote:\n" + strings.Join(s.log, "\n")
}

// end sends an interrupt to the process and requires a clean exit.
func (s *server) end() error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("the server exited early: %w%s", err, s.said())
	}
	select {
	case err := <-s.ended:
		s.process = nil
		if err != nil {
			return fmt.Errorf("%w%s", err, s.said())
		}
		return nil
	case <-time.After(time.Minute):
		return errors.New("the server did not exit within a minute of the signal")
	}
}

// kill kills the process if it still runs and removes the temporary files.
func (s *server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		<-s.ended //nolint:errcheck // killed
		s.process = nil
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

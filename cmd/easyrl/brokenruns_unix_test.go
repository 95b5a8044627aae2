//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/trainer"
)

// brokenRun is a run that cannot start.
type brokenRun struct {
	name     string
	verb     string   // train or sft
	settings []string // besides those of the folder's run.toml
	resume   bool
	code     int
	want     string // part of the message
	static   bool   // a static check finds it too
}

// A check refuses the runs that train and sft refuse, with the same text and status, and
// leaves no file, process, socket or goroutine behind.
func TestBrokenRuns(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := badRun(t)
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o755))
	b := &breaker{dir: dir, out: filepath.Join(dir, "out")}
	b.settings(t)
	b.data(t)
	b.models(t)
	b.folders(t)
	b.resumes(t)
	b.machine(t)
	b.rewards(t)
	b.connections(t)
	require.Greater(t, len(b.all), 120)
	for _, broken := range b.all {
		t.Run(broken.verb+" "+broken.name, func(t *testing.T) { broken.run(t, dir, b.out) })
	}
}

func (r *brokenRun) run(t *testing.T, dir, out string) {
	args := []string{filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", out)}
	for _, s := range r.settings {
		args = append(args, "-set", s)
	}
	if r.resume {
		args = append(args, "-resume")
	}
	check := append([]string{"check"}, args...)
	if r.verb == "sft" {
		check = append(check, "-sft")
	}
	running, before := goleak.IgnoreCurrent(), traces(t, dir)
	code, shown, errs := command(t, check...)
	requireNoTraces(t, dir, before, running)
	require.Equal(t, r.code, code, errs)
	require.Contains(t, errs, r.want)
	require.NotContains(t, shown, "# ok")

	for _, flag := range []string{"-static", "-json"} {
		again, shown, alike := command(t, append(check, flag)...)
		if flag == "-static" && !r.static {
			require.NotEqual(t, errs, alike, "a static check does not find it")
			continue
		}
		require.Equal(t, code, again, flag)
		require.Equal(t, errs, alike, flag)
		var found map[string]any
		if flag == "-json" && shown != "" { // the configuration is valid
			require.NoError(t, json.Unmarshal([]byte(shown), &found))
			require.Equal(t, false, found["ok"])
			require.Contains(t, errs, plain.Text(found["error"].(string)))
		}
	}

	requireNoTraces(t, dir, before, running)
	ended, _, said := command(t, append([]string{r.verb}, args...)...)
	require.Equal(t, said, errs, "a check says what the run says")
	require.Equal(t, ended, code, said)
	if code == exitUsage {
		require.Equal(t, before, traces(t, dir), "the run changes nothing either")
	}
}

// requireNoTraces requires that the traces become those of before. Killed processes and
// closed connections may take a while to vanish.
func requireNoTraces(t *testing.T, dir string, before []string, running goleak.Option) {
	t.Helper()
	var err error
	var now []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		now = traces(t, dir)
		if err = goleak.Find(running); err == nil && slices.Equal(before, now) {
			return
		}
	}
	require.NoError(t, err)
	require.Equal(t, before, now)
}

// traces returns everything that a check could leave behind: what is below dir with modes
// and times, child processes and those that mention dir, and listening sockets.
func traces(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s %v %d %v", path, info.Mode(), info.Size(), info.ModTime()))
		return nil
	}))
	for fd := range 1024 {
		if on, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err == nil && on != 0 {
			all = append(all, fmt.Sprintf("listening on %d", fd))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*") // none but on Linux
	require.NoError(t, err)
	child := regexp.MustCompile(fmt.Sprintf(`\) \w %d `, os.Getpid()))
	for _, p := range processes { // each may end meanwhile
		stat, _ := os.ReadFile(filepath.Join(p, "stat"))
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if child.Match(stat) || strings.Contains(string(args), dir) {
			all = append(all, fmt.Sprintf("%s %q", p, args))
		}
	}
	return all
}

// breaker collects broken runs of one folder.
type breaker struct {
	dir, out string
	all      []brokenRun
}

func (b *breaker) in(name string) string { return filepath.Join(b.dir, name) }

// add adds a run that a static check refuses as well.
func (b *breaker) add(verb, name, want string, settings ...string) *brokenRun {
	if verb == "sft" && !slices.ContainsFunc(settings,
		func(s string) bool { return strings.HasPrefix(s, "sft.data=") }) {
		settings = append(settings, "sft.data="+b.in("demos.jsonl"))
	}
	b.all = append(b.all, brokenRun{name: name, verb: verb, settings: settings, code: exitUsage, want: want,
		static: true})
	return &b.all[len(b.all)-1]
}

// both adds a run of either verb.
func (b *breaker) both(name, want string, settings ...string) {
	b.add("train", name, want, slices.Clone(settings)...)
	b.add("sft", name, want, slices.Clone(settings)...)
}

func (b *breaker) settings(t *testing.T) {
	write(t, b.dir, "demos.jsonl", `{"prompt":"1","response":"2"}`+"\n"+`{"prompt":"3","response":"4"}`+"\n")
	b.both("unknown key", "unknown key rollout.grop_size", "rollout.grop_size=3")
	b.both("wrong type", "expected a whole number", "rollout.group_size=x")
	b.both("negative rate", "train.lr is -1", "train.lr=-1")
	b.both("unknown mode", "run.mode", "run.mode=fast")
	b.both("two faults", "run.seed", "run.seed=99999999999999999999", "train.lr=-1")
	b.both("ranks", "[parallel] tp is 9, expected at most", "parallel.tp=9")
	b.add("train", "no steps", "run.steps is 0", "run.steps=0")
	b.add("sft", "no steps", "sft.steps is 0", "sft.steps=0")
	b.add("train", "one response", "rollout.group_size is 1", "rollout.group_size=1")
	b.add("train", "minibatches", "train.minibatches is 4", "train.minibatches=4")
	b.add("train", "unknown reward", `reward.kind is "comand"`, "reward.kind=comand")
	b.add("train", "unknown objective", "loss.kind", "loss.kind=ppo2")
	b.add("train", "evaluation without data", "data.eval is not set", "data.eval=[]", "eval.every=2")
	b.add("train", "no endpoints", "inference.endpoints", "inference.kind=vllm")
	b.add("train", "bad endpoint", "inference.endpoints has", "inference.kind=vllm", "inference.endpoints=ftp://x")
	b.add("train", "too few instances", "inference.min_instances is 3", "inference.min_instances=3")
	b.add("train", "open control address", "control.token_file is not set", "control.listen=0.0.0.0:0")
	b.add("sft", "unknown turns", "sft.turns", "sft.turns=some")
	b.add("train", "response longer than the context", "rollout.max_tokens is 64, expected 63 at most",
		"rollout.max_tokens=64")
}

func (b *breaker) data(t *testing.T) {
	write(t, b.dir, "odd.jsonl", `{"question_text":"1","label":"2"}`+"\n")
	write(t, b.dir, "table.jsonl", "prompt,answer\n1,2\n")
	write(t, b.dir, "not.parquet", "PAR0")
	write(t, b.dir, "chat.jsonl", `{"messages":[{"role":"user","content":"1"}],"answer":"2"}`+"\n")
	write(t, b.dir, "chatdemo.jsonl", `{"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"}]}`+
		"\n")
	for name, want := range map[string]string{
		"none.jsonl": "no such file", "none*.jsonl": "no file matches", "empty": "expected at least one JSON object",
		"cut.jsonl":   "cut.jsonl:2: not a JSON object",
		"odd.jsonl":   "odd.jsonl:1: prompt: ",
		"table.jsonl": "table.jsonl: found CSV, expected JSON lines, JSON or Parquet",
		"not.parquet": "not.parquet", ".": "is a folder, expected a regular file",
	} {
		b.add("train", "data "+name, want, "data.train="+b.in(name))
		b.add("train", "held-out data "+name, want, "data.eval="+b.in(name))
		b.add("sft", "data "+name, want, "sft.data="+b.in(name))
		b.add("sft", "held-out data "+name, want, "sft.eval="+b.in(name))
	}
	b.add("train", "empty prompt", "prompt blank.jsonl:2 is empty", "data.train="+b.in("blank.jsonl"))
	b.add("train", "no answers", "none of 1 prompts has a reference answer", "data.train="+b.in("nokey.jsonl"))
	b.add("train", "null answers", "none of 1 prompts has a reference answer", "data.train="+b.in("null.jsonl"))
	b.add("train", "wrong answers", "finds 1 of 2 reference answers wrong", "reward.kind=math", "data.eval=[]",
		"data.train="+b.in("wronggold.jsonl"))
	b.add("train", "prompt key", `no key "question", found "answer", "prompt"`, "data.prompt_key=question")
	b.add("train", "answer key", `no key "solution", found "answer", "prompt"`, "data.answer_key=solution")
	b.add("train", "long prompts", "all 23 prompts are longer than 2 tokens", "data.max_prompt_tokens=2")
	b.add("train", "reward without a source", "no prompt has this data source",
		`reward={kind="prefix",sources={nosuch={kind="exact"}}}`)
	b.add("train", "source without a reward", "which has no reward", "reward.sources.other.kind=exact", "reward.kind=")
	b.add("train", "file twice", "named twice",
		fmt.Sprintf("data.train=[%q,%q]", b.in("prompts.jsonl"), b.in("prompts.jsonl")))
	b.add("sft", "no response", "nokey.jsonl:1: ", "sft.data="+b.in("nokey.jsonl"))
	b.add("sft", "response key", `no key "reply"`, "sft.response_key=reply")
	b.add("sft", "long demonstrations", "all 2 demonstrations are too long", "data.max_prompt_tokens=1")
	b.add("train", "conversation without a template", "chat template", "data.train="+b.in("chat.jsonl"))
	b.add("sft", "conversation without a template", "chat template", "sft.data="+b.in("chatdemo.jsonl"))
	b.both("template that the model lacks", "chat template", "data.template=chat")
}

// modelSettings makes a run start from the model folder m.
func modelSettings(m string) []string {
	return []string{"model.init.config=", fmt.Sprintf("model.path=%q", m)}
}

func (b *breaker) models(t *testing.T) {
	bad := badModels(b.dir)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		m := copyDir(t, b.in("m"), b.dir, "m "+name+"/m")
		b.both(name, bad[name](t, m), modelSettings(m)...)
		if name == "NaN" { // values are not read by a static check
			b.all[len(b.all)-1].static, b.all[len(b.all)-2].static = false, false
		}
	}
	for name, text := range map[string]string{"cut": "{% for m in messages %}",
		"unknown filter": "{{ messages | nonsense }}", "refusing": "{{ raise_exception('not for you') }}"} {
		m := copyDir(t, b.in("m"), b.dir, "template "+name)
		write(t, m, "chat_template.jinja", text)
		b.both("template "+name, "", append(modelSettings(m), "data.template=chat")...)
	}
	bare := copyDir(t, b.in("m"), b.dir, "bare")
	require.NoError(t, os.Remove(filepath.Join(bare, "tokenizer_config.json")))
	b.both("tokenizer", "has no tokenizer files", modelSettings(bare)...)
	lone := filepath.Join(b.dir, "lone")
	require.NoError(t, os.Mkdir(lone, 0o755))
	config, err := os.ReadFile(b.in("config.json"))
	require.NoError(t, err)
	b.both("tokenizer of a random model", "has no tokenizer files",
		"model.init.config="+write(t, lone, "config.json", string(config)))
	b.both("model and random model", "model.path is", fmt.Sprintf("model.path=%q", b.in("m")))
	b.both("no model", "model.path is not set", "model.init.config=")
	b.both("no config", "read model configuration", "model.init.config="+b.in("none.json"))
	b.both("a file as model", "run.toml is a file, expected a Hugging Face model folder",
		modelSettings(b.in("run.toml"))...)
	b.both("run folder as model", "config.json", modelSettings(b.dir+"/tmp")...)
	index := copyDir(t, b.in("m"), b.dir, "index")
	require.NoError(t, os.Rename(filepath.Join(index, "model.safetensors"),
		filepath.Join(index, "model-00001-of-00002.safetensors")))
	write(t, index, "model.safetensors.index.json",
		`{"weight_map":{"model.embed_tokens.weight":"model-00002-of-00002.safetensors"}}`)
	b.both("missing shard", "model-00002-of-00002.safetensors", modelSettings(index)...)
}

func (b *breaker) folders(t *testing.T) {
	require.NoError(t, os.Symlink("nowhere", b.in("dangling")))
	require.NoError(t, os.Symlink("loop", b.in("loop")))
	b.both("folder is a file", "is a file, expected a folder", "run.dir="+b.in("run.toml"))
	b.both("folder below a file", "not a directory", "run.dir="+b.in("run.toml/below/it"))
	b.both("folder is a link to nowhere", "expected a writable folder: mkdir", "run.dir="+b.in("dangling"))
	b.both("folder is a loop", "too many levels of symbolic links", "run.dir="+b.in("loop/x"))
	b.both("long name", "file name too long", "run.dir="+b.in("new/"+strings.Repeat("x", 300)))
	b.both("configuration of the run", "would be overwritten", "run.dir="+b.dir)
	b.both("nowhere", "expected a writable folder", "run.dir=/proc/easyrl-test/x")
	b.both("invalid name", "invalid", `run.dir="a\u0000b"`)
	done := trainTiny(t, b.dir, "done", "run.steps=1")
	b.both("another run", "already contains a run", fmt.Sprintf("run.dir=%q", done))
	lines := b.in("lines")
	require.NoError(t, os.Mkdir(lines, 0o755))
	write(t, lines, "metrics.jsonl", `{"step":1}`+"\n")
	b.both("metrics of another run", "already contains a run", fmt.Sprintf("run.dir=%q", lines))
	half := copyDir(t, done, b.dir, "half-run")
	corrupt(t, filepath.Join(half, "checkpoints", "step-000001", "config.json"))
	b.both("broken checkpoint of another run", "already contains a run", fmt.Sprintf("run.dir=%q", half))
	for _, part := range []string{"checkpoints", "rollouts"} {
		run := filepath.Join(b.dir, part+"-file")
		require.NoError(t, os.Mkdir(run, 0o755))
		write(t, run, part, "")
		b.both(part+" is a file", "not a directory", fmt.Sprintf("run.dir=%q", run))
	}
	for _, part := range []string{"lock", "metrics.jsonl"} {
		run := filepath.Join(b.dir, part+"-folder")
		require.NoError(t, os.MkdirAll(filepath.Join(run, part), 0o755))
		b.both(part+" is a folder", "", fmt.Sprintf("run.dir=%q", run))
		b.all[len(b.all)-1].resume, b.all[len(b.all)-2].resume = true, true
	}
	locked := b.in("locked")
	require.NoError(t, os.Mkdir(locked, 0o755))
	unlock, held, err := trainer.Lock(locked, true)
	require.NoError(t, err)
	t.Cleanup(unlock)
	if held {
		b.add("train", "locked folder", "in use by another process", fmt.Sprintf("run.dir=%q", locked))
		b.add("sft", "locked folder to resume", "in use by another process",
			fmt.Sprintf("run.dir=%q", locked)).resume = true
	}
	if os.Getuid() != 0 {
		require.NoError(t, os.Mkdir(b.in("closed"), 0o555))
		b.both("closed folder", "permission denied", "run.dir="+b.in("closed/new"))
	}
}

func (b *breaker) resumes(t *testing.T) {
	done := fmt.Sprintf("run.dir=%q", filepath.Join(b.dir, "done"))
	resume := func(verb, name, want string, settings ...string) *brokenRun {
		r := b.add(verb, "resume: "+name, want, settings...)
		r.resume = true
		return r
	}
	resume("train", "seed", "run.seed is 9, expected the run's original 1", done, "run.seed=9")
	resume("train", "data", "files of data.train differ", done,
		"data.train="+write(t, b.dir, "others.jsonl", `{"prompt":"1","answer":"2"}`+"\n"))
	code, _, errs := command(t, "init", "-config", b.in("config.json"), "-out", b.in("seven"), "-seed", "7")
	require.Zero(t, code, errs)
	resume("train", "weights", "its weights differ", append(modelSettings(b.in("seven")), done)...).static = false
	resume("sft", "task", "was written by easyrl train, expected a checkpoint of easyrl sft", done)
	run := copyDir(t, filepath.Join(b.dir, "done"), b.dir, "garbled warnings")
	write(t, run, "warnings.jsonl", "{\n")
	resume("train", "garbled warnings", "read warnings", fmt.Sprintf("run.dir=%q", run),
		"run.steps=1").code = exitFailed
	half := fmt.Sprintf("run.dir=%q", filepath.Join(b.dir, "half-run"))
	resume("train", "no whole checkpoint", "none of the 1 checkpoints in", half)
	resume("train", "missing data", "no such file", done, "data.train="+b.in("none.jsonl"))
	resume("train", "fewer prompts", "expected 23 as when the run started", done, "data.max_prompt_tokens=3")
	b.all[len(b.all)-1].want = "all 23 prompts are longer" // every prompt has four tokens
}

func (b *breaker) machine(t *testing.T) {
	write(t, b.dir, "tokenizer_config.json",
		`{"char_ords":[48,49,50,51,52,53,54,55,56,57,44,58],"model_max_length":64}`)
	large := write(t, b.dir, "large.json",
		`{"model_type":"qwen3","hidden_size":16384,"intermediate_size":65536,"num_hidden_layers":128,`+
			`"num_attention_heads":64,
		"num_key_value_heads":8,"head_dim":128,"vocab_size":16,"max_position_embeddings":64}`)
	long := write(t, b.dir, "long.json",
		`{"model_type":"qwen3","hidden_size":512,"intermediate_size":1024,"num_hidden_layers":64,`+
			`"num_attention_heads":8,
		"num_key_value_heads":8,"vocab_size":16,"max_position_embeddings":1000000}`)
	first := len(b.all)
	b.both("too large", " of memory, expected at most ", "model.init.config="+large)
	b.add("train", "too many running", "Lower inference.max_running", "model.init.config="+long,
		"inference.max_running=65536", "rollout.max_tokens=100000")
	b.both("no such device", `device.kind is "cuda", expected "cpu"`, "device.kind=cuda")
	b.both("no such library", "open device library: stat", "device.kind="+b.in("none.so"))
	b.both("no library", "open device library", "device.kind="+b.in("run.toml"))
	for i := first; i < len(b.all); i++ {
		b.all[i].static = false
	}
	b.both("unknown device", "device.kind is", "device.kind=tpu")
}

func (b *breaker) rewards(t *testing.T) {
	first := len(b.all)
	b.add("train", "no program", "no such file", `reward={kind="command",command=["/none/scorer"]}`)
	b.add("train", "no program of this name", "executable file not found",
		`reward={kind="command",command=["easyrl-no-such-program"]}`)
	b.add("train", "program without permission", "permission denied",
		fmt.Sprintf(`reward={kind="command",command=[%q]}`, write(t, b.dir, "plain.sh", "#!/bin/sh\n")))
	b.add("train", "no service", "connection refused",
		fmt.Sprintf(`reward={kind="http",url=%q,timeout=60.0}`, "http://"+closedPort(t))).code = exitFailed
	garbage := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(garbage.Close)
	b.add("train", "service of another kind", "reward start-up check",
		fmt.Sprintf(`reward={kind="http",url=%q,timeout=60.0}`, garbage.URL)).code = exitFailed
	if _, err := os.Stat("/usr/bin/env"); err == nil {
		needsEnv(t)
		for _, mode := range slices.Sorted(maps.Keys(faults())) {
			if mode != "eat" {
				b.add("train", "reward "+mode, faults()[mode], rewardSettings(mode)[1]).code = exitFailed
			}
		}
		b.add("train", "reward with children", "reward start-up check",
			fmt.Sprintf(`reward={kind="command",command=["sh","-c","sleep 1000 & wait",%q],timeout=0.2}`,
				b.dir)).code = exitFailed
	}
	for i := first; i < len(b.all); i++ {
		b.all[i].static = false
	}
	b.add("train", "no command", "command is empty", "reward.kind=command")
}

// closedPort returns an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func (b *breaker) connections(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = busy.Close() })
	write(t, b.dir, "two words", "a b\n")
	write(t, b.dir, "token", "secret\n")
	listen := `control={listen="127.0.0.1:0",token_file=%q}`
	b.add("train", "no control token", "control.token_file: open ", fmt.Sprintf(listen, b.in("none")))
	b.add("train", "empty control token", "control.token_file: ", fmt.Sprintf(listen, b.in("empty")))
	b.add("train", "bad control token", "control.token_file: ", fmt.Sprintf(listen, b.in("two words")))
	b.add("train", "folder as control token", "control.token_file: ", fmt.Sprintf(listen, b.dir))
	server := "inference={kind=\"easyrl\",endpoints=[\"http://" + closedPort(t) + "\"],"
	b.add("train", "no servers' token", "inference.token_file: open ",
		server+fmt.Sprintf("token_file=%q}", b.in("none")))
	b.add("train", "bad servers' token", "inference.token_file: ",
		server+fmt.Sprintf("token_file=%q}", b.in("two words")))
	b.add("train", "no folder for weights", "inference.weights_dir: ",
		server+fmt.Sprintf("weights_dir=%q}", b.in("run.toml/x")))
	first := len(b.all)
	b.add("train", "busy control address", "address already in use", "control.listen="+busy.Addr().String())
	b.add("train", "no such port", "control.listen: ", "control.listen=127.0.0.1:99999")
	b.add("train", "refusing server", "connection refused", server+"}").code = exitFailed
	b.add("train", "refusing server of unknown kind", "connection refused",
		strings.Replace(server, `kind="easyrl"`, `kind="vllm"`, 1)+"}").code = exitFailed
	b.add("train", "too few servers", "2 instances are available, expected at least 3",
		server+"instances=2,min_instances=3}").code = exitFailed
	for name, status := range map[string]int{"page": http.StatusOK, "forbidden": http.StatusForbidden,
		"starting": http.StatusServiceUnavailable, "missing": http.StatusNotFound} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<html>"))
		}))
		t.Cleanup(s.Close)
		for _, kind := range []string{"easyrl", "vllm", "sglang"} {
			b.add("train", kind+" server answers "+name, "0 instances are available, expected at least 1",
				fmt.Sprintf("inference={kind=%q,endpoints=[%q]}", kind, s.URL)).code = exitFailed
		}
	}
	for name, linger := range map[string]int{"closes": -1, "resets": 0} {
		b.add("train", "server that "+name, "0 instances are available",
			fmt.Sprintf(`inference={kind="easyrl",endpoints=["http://%s"]}`, hangsUp(t, linger))).code = exitFailed
		b.add("train", "reward service that "+name, "reward start-up check",
			fmt.Sprintf(`reward={kind="http",url="http://%s",timeout=60.0}`, hangsUp(t, linger))).code = exitFailed
	}
	taken := takenServer(t)
	b.add("train", "server of another trainer", "instance is held by trainer",
		fmt.Sprintf(`inference={kind="easyrl",endpoints=[%q]}`, taken)).code = exitFailed
	for i := first; i < len(b.all); i++ {
		b.all[i].static = false
	}
}

// hangsUp returns the address of a server that closes connections, with a reset if linger
// is 0.
func hangsUp(t *testing.T, linger int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<16))
			_ = c.(*net.TCPConn).SetLinger(linger)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// takenServer returns the address of a server that refuses trainers.
func takenServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"m","max_model_len":64}]}`))
		case "/v1/weights":
			_, _ = w.Write([]byte(`{"version":1,"boot":"b"}`))
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write(
				[]byte(`{"error":{"message":"instance is held by trainer \"run x\"","type":"other_trainer"}}`))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

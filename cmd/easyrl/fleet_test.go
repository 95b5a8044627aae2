package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/run"
	"github.com/easyrl/easyrl/run/instances"
)

// probed is an engine that replaces a server.
type probed struct {
	*engine.Engine
	kind string
}

func (p probed) Kind() remote.Kind { return remote.Kind{Name: p.kind} }

func (probed) Probe(context.Context) error { return nil }

func (probed) Claim(context.Context) error { return nil }

func (p probed) Pulse(context.Context) (string, error) { return fmt.Sprint(p.Stats().Tokens), nil }

// tinyFleet returns the instances of tinyRun at version 3. Engines of this process replace
// the servers. URLs that contain "gone" are unreachable. said receives the run's messages.
func tinyFleet(t *testing.T) (in *instances.Instances, said chan string) {
	t.Helper()
	resolved, err := configs.Load([]string{filepath.Join(tinyRun(t), "run.toml")},
		[]string{"control.listen=127.0.0.1:0", fmt.Sprintf("run.dir=%q", t.TempDir())})
	require.NoError(t, err)
	require.NoError(t, resolved.Validate(configs.TrainTask))
	cfg := &resolved.Config
	shape, err := os.ReadFile(cfg.Model.Init.Config)
	require.NoError(t, err)
	f, err := folder.Random("tiny", filepath.Dir(cfg.Model.Init.Config), shape, cfg.Run.Seed)
	require.NoError(t, err)
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	start := func(ec engine.Config) (*engine.Engine, error) { return run.StartEngine(f, ec, dev, 1) }
	said = make(chan string, 100)
	in, err = instances.Start(t.Context(), cfg,
		&instances.Deps{Shape: f.Shape, Engine: start, Fleet: fleet.DefaultConfig(),
			Say: func(_ notice.Kind, format string, args ...any) { said <- fmt.Sprintf(format, args...) },
			Dial: func(_ context.Context, e remote.Endpoint) (remote.Server, error) {
				if strings.Contains(e.URL, "gone") {
					return nil, fmt.Errorf("instance %s: connection refused", e.URL)
				}
				inst, err := start(instances.EngineConfig(cfg, e.URL, f.Shape))
				return probed{inst, cmp.Or(e.Kind, remote.EasyRL)}, err
			}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.Close()) })
	w, err := f.Weights(dev)
	require.NoError(t, err)
	require.NoError(t, in.Publish(t.Context(), model.NewSnapshot(w, 3)))
	return in, said
}

func TestFleetVerb(t *testing.T) {
	t.Parallel()
	in, said := tinyFleet(t)
	await := func(line string) {
		for !strings.Contains(<-said, line) { //nolint:revive // wait for the line
		}
	}
	token := write(t, t.TempDir(), "token", "secret\n")
	page, err := control.New("127.0.0.1:0", "secret", t.TempDir())
	require.NoError(t, err)
	t.Cleanup(page.Close)
	trainer := "http://" + page.Addr()
	fleet := func(args ...string) (code int, out, errs string) {
		return command(t, append([]string{"fleet", "-trainer", trainer, "-token-file", token}, args...)...)
	}
	code, _, errs := fleet("list")
	require.Equal(t, exitFailed, code)
	require.Equal(t, "error: fleet: the run has not started its instances yet\n", errs)
	require.NoError(t, in.Begin(t.Context(), page))

	code, out, errs := fleet("list")
	require.Zero(t, code, errs)
	lines := strings.Split(out, "\n")
	require.Equal(t, []string{"ID", "KIND", "STATE", "VERSION", "RUNNING", "CAPACITY", "SERVED", "FAILED", "TOKENS"},
		strings.Fields(lines[0]))
	require.Equal(t, []string{"embedded-1", "embedded", "HEALTHY", "3", "0", "7", "0", "0", "0"},
		strings.Fields(lines[1]))

	code, out, errs = fleet("add", "http://a:8000/", "-kind", "vllm")
	require.Zero(t, code, errs)
	require.Equal(t, "http://a:8000 joined: vllm, HEALTHY, version 3\n", out)
	await("instance http://a:8000 (vllm) joined and serves version 3")
	code, out, errs = fleet("add", "http://a:8000") // already a member
	require.Zero(t, code, errs)
	require.Equal(t, "http://a:8000 joined: vllm, HEALTHY, version 3\n", out)

	code, out, errs = fleet("drain", "http://a:8000")
	require.Zero(t, code, errs)
	require.Equal(t, "http://a:8000 has no work left; remove it with: easyrl fleet remove http://a:8000\n", out)
	await("instance http://a:8000 has finished its work")
	_, id, err := in.Fleet().Generate(t.Context(),
		inference.Request{PromptIDs: []int32{3, 4}, N: 1, Sampling: inference.Sampling{TopP: 1, MaxTokens: 4}})
	require.NoError(t, err)
	require.Equal(t, "embedded-1", id)
	code, out, errs = fleet("list", "-json")
	require.Zero(t, code, errs)
	var all []control.Instance
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.EqualValues(t, 1, all[0].Served)
	require.Equal(t, "DRAINED", all[1].State)
	require.Equal(t, "http://a:8000", all[1].URL)

	code, out, errs = fleet("remove", "http://a:8000")
	require.Zero(t, code, errs)
	require.Equal(t, "http://a:8000 left\n", out)
	await("instance http://a:8000 left")
	code, out, errs = fleet("add", "http://a:8000")
	require.Zero(t, code, errs)
	require.Equal(t, "http://a:8000 joined: easyrl, HEALTHY, version 3\n", out)

	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"drain", "b"}, exitFailed, "fleet: drain instance b: no such instance"},
		{[]string{"remove", "b"}, exitFailed, "fleet: remove instance b: no such instance"},
		{[]string{"drain", "embedded-1"}, exitUsage,
			"fleet: drain instance embedded-1: runs inside the trainer and cannot be drained or removed"},
		{[]string{"remove", "embedded-1"}, exitUsage, "fleet: remove instance embedded-1: runs inside the trainer"},
		{[]string{"add", "http://gone"}, exitFailed, "fleet: instance http://gone: connection refused"},
		{[]string{"add", "b:80"}, exitUsage, `fleet: url is "b:80", expected {"url": `},
		{[]string{"add", "http://b", "-kind", "tgi"}, exitUsage,
			`fleet: instance cannot be added: "http://b", expected one of "` + strings.Join(remote.Names(), `", "`) +
				`" before the URL`},
		{[]string{"kill", "b"}, exitUsage,
			`fleet: arguments are "kill b", expected list, add URL, drain ID or remove ID`},
		{nil, exitUsage, `fleet: arguments are "", expected list`},
	} {
		code, _, errs := fleet(c.args...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, errs, "error: "+c.err)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
	code, _, errs = command(t, "fleet", "list", "-trainer", trainer)
	require.Equal(t, exitFailed, code)
	require.Equal(t, "error: fleet: bearer token is missing or wrong, expected Authorization: Bearer TOKEN\n", errs)
	code, _, errs = command(t, "fleet", "list", "-trainer", "127.0.0.1:7000")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `-trainer is "127.0.0.1:7000", expected http://HOST:PORT`)
	code, _, errs = command(t, "fleet", "list", "-token-file", write(t, t.TempDir(), "empty", "\n"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "has no token")
}

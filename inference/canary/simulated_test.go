package canary

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// foreign is a device whose results differ from the trainer's as those of another engine
// do: each result of each kernel is rounded to bfloat16 or off by about one float32 unit.
type foreign struct {
	npu.Device
	bf16 bool
}

func (d foreign) round(b npu.Buffer) {
	vals := b.Float32s()
	for i, v := range vals {
		vals[i] = d.rounded(v)
	}
}

func (d foreign) rounded(v float32) float32 {
	bits := math.Float32bits(v)
	if d.bf16 {
		return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
	}
	off := float64(splitmix.Mix(uint64(bits))>>11)/(1<<52) - 1
	return float32(float64(v) * (1 + off*0x1p-22))
}

func (d foreign) Embed(y npu.Buffer, table npu.Matrix, ids npu.Ints) {
	d.Device.Embed(y, table, ids)
	d.round(y)
}

func (d foreign) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int,
	start npu.Start) {
	d.Device.Linear(y, x, w, bias, t, start)
	d.round(y)
}

func (d foreign) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	d.Device.RMSNorm(y, x, weight, t, eps)
	d.round(y)
}

func (d foreign) Rope(x, table npu.Buffer, positions npu.Ints, heads, dim int, inverse bool) {
	d.Device.Rope(x, table, positions, heads, dim, inverse)
	d.round(x)
}

func (d foreign) SwiGLU(y, gate, up npu.Buffer) {
	d.Device.SwiGLU(y, gate, up)
	d.round(y)
}

func (d foreign) Attention(out, stats, q, k, v npu.Buffer, segments npu.Segments, h npu.Heads) {
	d.Device.Attention(out, stats, q, k, v, segments, h)
	d.round(out)
}

const headName, embedName = "lm_head.weight", "model.embed_tokens.weight"

// values are a decoder's weights by tensor, always with an output projection.
type values map[string][]float32

func read(w *model.Weights) values {
	out := values{}
	for i := range w.Params {
		vals := make([]float32, w.Params[i].Shape().Values())
		w.Read(i, vals)
		out[w.Params[i].Name] = vals
	}
	if w.Config.Tied {
		out[headName] = out[embedName]
	}
	return out
}

// server is a vLLM server whose engine computes as foreign does. It has an output
// projection of its own, also if the model ties it to the embedding.
type server struct {
	t    *testing.T
	url  string
	tape *model.Tape
	bf16 bool

	mu      sync.Mutex // one request at a time
	w       *model.Weights
	held    values
	label   string
	updates int
	before  values // the update before
	// keeps reports whether a tensor keeps its values at an update; the first is 1.
	keeps func(name string, update int) bool
	// late is the first update at which the server loads the one before instead.
	late int
}

// serve starts a server that has loaded these values.
func serve(t *testing.T, shape *model.Config, loaded values, bf16 bool) *server {
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	untied := *shape
	untied.Tied = false
	s := &server{t: t, bf16: bf16, tape: model.NewTape(foreign{dev, bf16}, &untied),
		keeps: func(string, int) bool { return false }, late: math.MaxInt}
	s.w, err = model.NewWeights(dev, &untied, npu.Weights)
	require.NoError(t, err)
	s.hold(loaded)
	h := httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(func() {
		h.Close()
		s.tape.Close()
		require.NoError(t, dev.Close())
	})
	s.url = h.URL
	return s
}

// hold sets the weights of the engine.
func (s *server) hold(v values) {
	s.held = v
	require.NoError(s.t, s.w.Fill(func(p *tensor.Param, vals []float32, first int) error {
		copy(vals, v[p.Name][first:])
		for i := range vals {
			if s.bf16 {
				vals[i] = foreign{bf16: true}.rounded(vals[i])
			}
		}
		return nil
	}))
}

// restart returns the server to what it held when it started.
func (s *server) restart(loaded values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(loaded)
	s.label, s.updates, s.before = "", 0, nil
}

// load reads an update from a folder, as far as the server's fault lets it.
func (s *server) load(folder string) error {
	f, err := checkpoint.OpenFolder(folder)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	file := values{}
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		file[name] = make([]float32, len(s.held[name]))
		if err := t.ReadAt(file[name], 0); err != nil {
			return err
		}
	}
	if _, ok := file[headName]; !ok {
		file[headName] = file[embedName]
	}
	s.updates++
	now, source := maps.Clone(s.held), file
	if s.updates >= s.late {
		source = s.before
	}
	for name := range now {
		if !s.keeps(name, s.updates) {
			now[name] = source[name]
		}
	}
	s.before = file
	s.hold(now)
	return nil
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in struct {
		Method string   `json:"method"`
		Args   []string `json:"args"`
		Prompt []int32  `json:"prompt"`
	}
	if r.Method == http.MethodPost && r.ContentLength > 0 {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	type object = map[string]any
	out := object{"success": true}
	switch r.URL.Path {
	case "/version":
		out["version"] = "0.22.0"
	case "/v1/models":
		out["data"] = []any{object{"id": "m", "max_model_len": 128}}
	case "/collective_rpc":
		if in.Method == "easyrl_load" {
			if err := s.load(in.Args[0]); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			s.label = in.Args[1]
		}
		out["results"] = []any{s.label}
	case "/v1/completions":
		out["choices"] = []any{object{"index": 0, "text": "", "finish_reason": "length", "token_ids": []int{0},
			"prompt_token_ids": in.Prompt,
			"logprobs":         object{"tokens": []string{"token_id:0"}, "token_logprobs": []float32{-1}},
			"prompt_logprobs":  s.logprobs(in.Prompt)}}
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *server) logprobs(prompt []int32) []any {
	var l attention.Layout
	l.Add(-1, prompt, true)
	logp := make([]float32, len(l.Targets))
	if err := errors.Join(s.tape.Forward(s.w, &l, 1, false, logp, make([]float32, len(logp))), s.tape.Wait()); err !=
		nil {
		s.t.Error(err)
	}
	out := []any{nil}
	for i, v := range logp {
		out = append(out, map[string]any{fmt.Sprint(prompt[i+1]): map[string]any{"logprob": v, "rank": 1}})
	}
	return out
}

// client publishes weights to servers as a run does.
type client struct {
	t     *testing.T
	ref   *Reference
	store *publish.Store
}

func newClient(t *testing.T, shape *model.Config, tokens []int32) *client {
	store, err := publish.NewStore(filepath.Join(t.TempDir(), "weights"))
	require.NoError(t, err)
	c := &client{t: t, ref: NewReference(shape, npu.FP32, Prompt(shape, tokens, publish.CanaryTokens)), store: store}
	t.Cleanup(func() { require.NoError(t, c.ref.Close()) })
	return c
}

// connect returns a connection to s.
func (c *client) connect(s *server) remote.Server {
	inst, err := remote.Dial(c.t.Context(),
		remote.Config{URL: s.url, Kind: remote.VLLM, Store: c.store, Canary: c.ref.Canary()})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, inst.Close()) })
	return inst
}

// publish publishes w as a version.
func (c *client) publish(inst remote.Server, w *model.Weights, version int64) error {
	snapshot := model.NewSnapshot(w, version)
	c.ref.SetWeights(snapshot)
	_, err := inst.Publish(c.t.Context(), snapshot)
	return err
}

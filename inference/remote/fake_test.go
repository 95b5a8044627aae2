package remote

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// fakeWeights is a safetensors file of one number, which determines all that a fake
// server samples.
type fakeWeights struct {
	version int64
	value   float32
}

func (w fakeWeights) Version() int64   { return w.version }
func (w fakeWeights) Checksum() string { return fmt.Sprintf("%016x", math.Float32bits(w.value)) }

func (w fakeWeights) WriteSafetensors(out io.Writer) error {
	header := fmt.Sprintf(
		`{"__metadata__":{"easyrl.checksum":%q},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, w.Checksum())
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = binary.LittleEndian.AppendUint32(append(data, header...), math.Float32bits(w.value))
	_, err := out.Write(data)
	return err
}

func readFake(data []byte) (float32, error) {
	if len(data) < 12 {
		return 0, errors.New("file too short")
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data[len(data)-4:])), nil
}

// fake is a server of one of the kinds, with real HTTP over pipes.
type fake struct {
	kind string
	t    *testing.T
	pipe *pipeListener
	http *http.Server
	ends chan struct{} // closed at the end of the test
	// computes is the model fingerprint that easyrl reports; c1 if empty.
	computes string
	layout   string // that easyrl reports
	rowsOnly bool   // easyrl refuses the layout

	mu      sync.Mutex
	value   float32 // the weights
	packed  bool    // weights arrived packed
	version int64   // easyrl's
	trainer string  // that holds easyrl's server
	label   string
	paused  bool
	calls   []string                  // path and query of all but /health
	bodies  map[string]map[string]any // the last request of each path
	old     bool                      // an update answers 200 and keeps the weights
	without map[string]bool           // paths missing on an older server
	// fault, if set, may answer in place of the server.
	fault    func(w http.ResponseWriter, r *http.Request) bool
	edit     func(path string, answer any) any // changes each answer
	adapters map[string]float32                // vLLM's, by name
	// seeded makes SGLang run with --enable-deterministic-inference.
	seeded bool
}

// pipeListener is a listener in memory, for tests that run in a bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func newFake(t *testing.T, kind string) *fake {
	f := &fake{
		kind: kind, t: t, label: "default", bodies: map[string]map[string]any{}, adapters: map[string]float32{},
		without: map[string]bool{}, ends: make(chan struct{}),
		pipe: &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})},
	}
	var open sync.WaitGroup // connections
	f.http = &http.Server{Handler: http.HandlerFunc(f.serve), ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Done()
			}
		}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.http.Serve(f.pipe)
	}()
	t.Cleanup(func() {
		close(f.ends)
		_ = f.http.Close()
		<-done
		open.Wait()
	})
	return f
}

// config returns the configuration of a client of f.
func (f *fake) config() Config {
	store, err := publish.NewStore(filepath.Join(f.t.TempDir(), "weights"))
	require.NoError(f.t, err)
	return Config{URL: "http://fake:8000", Store: store, dial: f.pipe.dial}
}

// dial returns a client of f.
func (f *fake) dial(edit ...func(*Config)) Server {
	cfg := f.config()
	for _, e := range edit {
		e(&cfg)
	}
	inst, err := Dial(f.t.Context(), cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, inst.Close()) })
	return inst
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) called(path string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if strings.HasPrefix(c, path) {
			n++
		}
	}
	return n
}

// restart simulates a new process with the base weights.
func (f *fake) restart() {
	f.set(func() { f.value, f.version, f.label, f.adapters = 0, 0, "default", map[string]float32{} })
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault := f.fault
	if r.URL.Path != "/health" {
		f.calls = append(f.calls, r.URL.RequestURI())
	}
	gone := f.without[r.URL.Path]
	f.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if gone {
		http.NotFound(w, r)
		return
	}
	answer, status := f.answer(r)
	if f.edit != nil {
		answer = f.edit(r.URL.Path, answer)
	}
	if s, ok := answer.(string); ok { // raw text
		w.WriteHeader(status)
		_, _ = io.WriteString(w, s)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

type object = map[string]any

func (f *fake) answer(r *http.Request) (any, int) {
	var body object
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return object{"error": err.Error()}, 400
	}
	if r.Method == http.MethodPost && len(data) > 0 {
		if err := json.Unmarshal(data, &body); err != nil {
			return object{"error": err.Error()}, 400
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies[r.URL.Path] = body
	call := r.Method + " " + r.URL.Path
	if call == "GET /health" {
		return object{}, 200
	}
	if call == "GET /v1/models" {
		data := []any{object{"id": "tiny", "max_model_len": 128}}
		for name := range f.adapters {
			data = append(data, object{"id": name, "max_model_len": nil})
		}
		return object{"object": "list", "data": data}, 200
	}
	switch f.kind {
	case EasyRL:
		return f.easyrl(call, r, data, body)
	case VLLM:
		return f.vllm(call, body)
	case SGLang:
		return f.sglang(call, body)
	}
	return notFound()
}

func notFound() (any, int) { return object{"detail": "Not Found"}, 404 }

func (f *fake) easyrl(call string, r *http.Request, data []byte, body object) (any, int) {
	now := func() object {
		return object{"version": f.version, "checksum": fakeWeights{value: f.value}.Checksum(), "boot": "b1",
			"capacity": 7, "cores": 3, "config": cmp.Or(f.computes, "c1"), "layout": f.layout}
	}
	switch call {
	case "POST /v1/trainer":
		if f.trainer != "" && f.trainer != body["id"] {
			return object{"error": object{"message": "held by another trainer"}}, 409
		}
		if body["try"] != true {
			f.trainer = body["id"].(string)
		}
		return object{}, 200
	case "DELETE /v1/trainer":
		f.trainer = ""
		return object{}, 200
	case "GET /v1/weights":
		return now(), 200
	case "PUT /v1/weights":
		query := r.URL.Query()
		if path := query.Get("path"); path != "" {
			var err error
			if data, err = os.ReadFile(path); err != nil {
				return object{"error": object{"message": err.Error(), "type": "invalid_request_error"}}, 400
			}
		} else if r.ContentLength != int64(len(data)) {
			return object{"error": object{"message": fmt.Sprintf(
				"content length is %d, expected %d", r.ContentLength, len(data))}}, 400
		}
		value, err := readFake(data)
		if err != nil {
			return object{"error": err.Error()}, 400
		}
		if f.rowsOnly && strings.Contains(string(data), "packed") {
			return object{"error": object{"message": "wrong layout", "type": "invalid_request_error"}}, 400
		}
		f.packed = strings.Contains(string(data), "packed")
		if sum := (fakeWeights{value: value}).Checksum(); !strings.Contains(string(data), sum) {
			return object{"error": object{"message": "the file has no checksum " + sum}}, 400
		}
		if !f.old {
			f.value = value
			f.version, _ = strconv.ParseInt(query.Get("version"), 10, 64)
		}
		return now(), 200
	case "POST /v1/completions":
		if want, ok := body["weight_version"].(float64); ok && int64(want) != f.version {
			return object{"error": object{"message": "other version held", "type": "stale_weights"}}, 409
		}
		answer := f.completions(body)
		answer["weight_version"], answer["weight_checksum"] = f.version, fakeWeights{value: f.value}.Checksum()
		return answer, 200
	}
	return notFound()
}

func (f *fake) sglang(call string, body object) (any, int) {
	switch call {
	case "GET /model_info", "GET /get_model_info":
		return object{"model_path": "/models/tiny", "weight_version": f.label}, 200
	case "GET /server_info", "GET /get_server_info":
		state := object{"effective_max_running_requests_per_dp": 24}
		return object{"max_running_requests": nil, "enable_deterministic_inference": f.seeded,
			"internal_states": []any{state, state}}, 200
	case "POST /update_weights_from_disk":
		data, err := os.ReadFile(filepath.Join(body["model_path"].(string), "model.safetensors"))
		if err != nil {
			return object{"success": false, "message": err.Error()}, 400
		}
		if !f.old {
			f.value, _ = readFake(data)
		}
		f.label = body["weight_version"].(string)
		return object{"success": true, "message": "Succeeded", "num_paused_requests": 0}, 200
	case "POST /generate":
		return f.generate(body), 200
	}
	return notFound()
}

func ints(v any) (out []int32) {
	for _, x := range v.([]any) {
		out = append(out, int32(x.(float64)))
	}
	return out
}

// draw is a log-probability of id after a prefix under the weights.
func (f *fake) draw(parts ...any) (int32, float32) {
	h := fnv.New64a()
	fmt.Fprint(h, append(parts, math.Float32bits(f.value))...)
	return int32(h.Sum64() % 1000), -float32(h.Sum64()>>40) / (1 << 22)
}

func (f *fake) promptLogprob(prompt []int32, i int) float32 {
	h := fnv.New64a()
	fmt.Fprint(h, prompt[:i+1])
	return -float32(h.Sum64()>>40)/(1<<22) - f.value
}

func (f *fake) sample(prompt []int32, seed, n int) (ids []int32, logprobs []float32) {
	for len(ids) < n {
		id, l := f.draw(prompt, seed, len(ids))
		ids, logprobs = append(ids, id), append(logprobs, l)
	}
	return ids, logprobs
}

func (f *fake) completions(body object) object {
	prompt := ints(body["prompt"])
	var choices []any
	for i := range int(body["n"].(float64)) {
		draw := i
		if seed := body["seed"].(float64); seed < 1000 { // others are not exact here
			draw += int(seed)
		}
		ids, logprobs := f.sample(prompt, draw, int(body["max_tokens"].(float64)))
		var tokens []string
		var top []any
		for j, id := range ids {
			tokens = append(tokens, fmt.Sprintf("token_id:%d", id))
			top = append(top, object{tokens[j]: logprobs[j], "token_id:2000": -9.5, "token_id:2001": -0.001})
		}
		ch := object{
			"index": i, "text": "text", "finish_reason": "length", "token_ids": ids, "prompt_token_ids": prompt,
			"logprobs": object{"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top,
				"text_offset": []int{}},
		}
		if body["prompt_logprobs"] != nil {
			all := []any{nil}
			for j := 1; j < len(prompt); j++ {
				all = append(all,
					object{fmt.Sprint(prompt[j]): object{"logprob": f.promptLogprob(prompt, j), "rank": 3}})
			}
			ch["prompt_logprobs"] = all
		}
		choices = append(choices, ch)
	}
	return object{"id": "cmpl-1", "object": "text_completion", "choices": choices, "usage": object{}}
}

func (f *fake) generate(body object) any {
	var out []any
	prompts := body["input_ids"].([]any)
	if _, ok := prompts[0].([]any); ok { // each with its own parameters
		for i := range prompts {
			out = append(out,
				f.generate(object{"input_ids": prompts[i], "sampling_params": body["sampling_params"].([]any)[i]}))
		}
		return out
	}
	prompt := ints(body["input_ids"])
	params := body["sampling_params"].(object)
	for i := range int(params["n"].(float64)) {
		seed := i
		if f.seeded {
			seed = 42 // of all without a seed
			if s, ok := params["sampling_seed"]; ok {
				seed = int(int32(s.(float64)))
			}
		}
		ids, logprobs := f.sample(prompt, seed, int(params["max_new_tokens"].(float64)))
		var tokens, top, input []any
		for j := range ids {
			tokens = append(tokens, []any{logprobs[j], ids[j], nil})
			top = append(top, []any{[]any{-0.5, 7, nil}, []any{-0.25, 8, nil}})
		}
		for j := range prompt {
			input = append(input, []any{f.promptLogprob(prompt, j), prompt[j], nil})
		}
		input[0].([]any)[0] = nil
		out = append(out, object{"text": "text", "output_ids": []int{}, "meta_info": object{
			"id": "1", "finish_reason": object{"type": "length", "length": len(ids)}, "prompt_tokens": len(prompt),
			"weight_version":        f.label,
			"output_token_logprobs": tokens, "output_top_logprobs": top, "input_token_logprobs": input,
		}})
	}
	if len(out) == 1 {
		return out[0]
	}
	return out
}

func request(n int) inference.Request {
	return inference.Request{
		PromptIDs: []int32{5, 6, 7}, N: n, Seed: 1<<64 - 1,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4},
	}
}

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
	"github.com/easyrl/easyrl/inference/remote/publish"
)

// vllm is an instance of vLLM's server. It accepts weights if it runs with
// VLLM_SERVER_DEV_MODE=1 and the worker extension of deploy/vllm, and adapters if it runs with
// --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
type vllm struct {
	*client
	labelled *labelled
	// raw means that log-probabilities ignore the temperature. The server runs with
	// --logprobs-mode raw_logprobs.
	raw bool
	// modeKnown means that the server reports its --logprobs-mode.
	modeKnown bool
	// resetPath is the path of the POST that empties the prefix cache.
	resetPath string
	// external means that the server uses a prefix cache outside its process.
	external bool
}

// vllmMinTemperature is the lowest temperature above 0 that vLLM uses. It raises lower ones to it.
const vllmMinTemperature = 0.01

// VLLM is the name of the kind of vLLM's server.
const VLLM = "vllm"

// vllmKind returns the kind of vLLM's server.
func vllmKind() Kind {
	return Kind{Name: VLLM, Title: "vLLM", marks: []mark{{"/version", "version"}}, shared: true, adapters: true,
		open:   newVLLM,
		remedy: "Update the worker deploy/vllm/easyrl_worker.py"}
}

// newVLLM connects to vLLM's server; see Kind.open.
func newVLLM(ctx context.Context, c *client) (Server, error) {
	if err := c.readModel(ctx); err != nil {
		return nil, err
	}
	v := &vllm{client: c, labelled: newLabelled(c), resetPath: "/reset_prefix_cache"}
	return v, v.readSettings(ctx)
}

// readSettings reads from the server how it was started. A server reports that only in development
// mode, an older one only as prose, and some take long because they inspect the machine. If there is
// no usable answer, the settings stay unknown.
func (v *vllm) readSettings(ctx context.Context) error {
	var server struct {
		Config struct {
			Scheduler struct {
				Running int `json:"max_num_seqs"` // per replica
			} `json:"scheduler_config"`
			Parallel struct {
				Replicas int `json:"data_parallel_size"`
			} `json:"parallel_config"`
			Model struct {
				Logprobs string `json:"logprobs_mode"`
			} `json:"model_config"`
			// Transfer configures a cache outside the server; null without one.
			Transfer map[string]any `json:"kv_transfer_config"`
		} `json:"vllm_config"`
	}
	err := v.http.Get(ctx, "/server_info?config_format=json", &server)
	v.modeKnown = err == nil && server.Config.Model.Logprobs != ""
	v.external = server.Config.Transfer != nil
	if err != nil || v.external {
		// Not always set, because it fails on some versions without an external cache.
		v.resetPath += "?reset_external=true"
	}
	switch mode := server.Config.Model.Logprobs; mode {
	case "", "processed_logprobs":
	case "raw_logprobs":
		v.raw = true
	default:
		return fmt.Errorf("GET /server_info: logprobs_mode %q, expected processed_logprobs", mode)
	}
	if v.capacity == 0 {
		v.capacity = server.Config.Scheduler.Running * max(1, server.Config.Parallel.Replicas)
	}
	if v.capacity == 0 {
		v.capacity = 256 // vLLM's smallest default
	}
	return nil
}

// Generate implements inference.Instance. After each exchange, it asks the worker extension whether
// the server still holds the published weights.
func (v *vllm) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	switch t := req.Sampling.Temperature; {
	case v.raw && t != 0 && t != 1:
		return nil, fmt.Errorf(
			"instance %s: log-probabilities ignore the temperature %v. Run vLLM with "+
				"--logprobs-mode processed_logprobs", v.url, t)
	case v.cfg.Adapters && !v.modeKnown && t != 0 && t != 1:
		return nil, fmt.Errorf("instance %s: GET /server_info: no logprobs_mode, expected one with a temperature of "+
			"%v. Run vLLM with VLLM_SERVER_DEV_MODE=1", v.url, t)
	case t > 0 && t < vllmMinTemperature:
		return nil, fmt.Errorf(
			"instance %s: temperature is %v, expected 0 or at least %v: vLLM samples lower ones at %[3]v", v.url, t,
			vllmMinTemperature)
	}
	return v.labelled.generate(ctx, req, v.sampler, func(ctx context.Context, label string) error {
		if label == "" || v.cfg.Adapters { // vLLM refuses a request for an adapter that it does not hold
			return nil
		}
		return v.verify(ctx, label)
	})
}

// sampler returns a Sampler under the weights of label. It uses the label as cache salt, because vLLM
// does not invalidate its prefix cache when weights change.
func (v *vllm) sampler(label string) publish.Sampler {
	return func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error) {
		greedy := req.Sampling.Temperature == 0
		n := req.N
		if greedy {
			req.N = 1 // vLLM refuses more than one; the others are copies
		}
		if req.Ended != nil && req.N > 1 {
			return v.separately(ctx, req, limit, label)
		}
		out, err := v.exchange(ctx, &req, limit, label, seedOf(&req))
		if err != nil {
			return nil, err
		}
		for greedy && len(out) < n {
			c := out[0]
			c.IDs, c.Logprobs = slices.Clone(c.IDs), slices.Clone(c.Logprobs)
			c.Top, c.PromptLogprobs = slices.Clone(c.Top), slices.Clone(c.PromptLogprobs)
			out = append(out, c)
		}
		return out, nil
	}
}

// seedOf returns the seed of a request's first response, which is req.FirstIndex. vLLM adds the index
// of a further response. Its seeds are signed, so seedOf uses 62 bits.
func seedOf(req *inference.Request) uint64 {
	return (req.Seed + uint64(req.FirstIndex)) & (1<<62 - 1)
}

// exchange makes one call for all responses of req, the first of which has the given seed.
func (v *vllm) exchange(ctx context.Context, req *inference.Request, limit int, label string, seed uint64) (
	[]inference.Completion, error) {
	body := newCompletionRequest(v.modelOf(label), req, limit)
	body.Seed = seed
	body.CacheSalt = label
	var answer completionAnswer
	err := v.complete(ctx, &body, bodyLimit(req, limit), func(a *completionAnswer) error {
		answer = *a
		return nil
	})
	if err != nil {
		return nil, v.markLost(label, err)
	}
	out, err := decodeAnswer(&answer, req, limit)
	if err != nil {
		return nil, fmt.Errorf("POST /v1/completions: %w", err)
	}
	return out, nil
}

// separately makes one call for each response of req and calls req.Ended with each as it arrives. This
// costs little, because vLLM samples the responses of one request as separate requests, too.
func (v *vllm) separately(ctx context.Context, req inference.Request, limit int, label string) (
	[]inference.Completion, error) {
	out := make([]inference.Completion, req.N)
	err := forAll(ctx, req.N, func(ctx context.Context, i int) error {
		one := req
		one.N = 1
		got, err := v.exchange(ctx, &one, limit, label, seedOf(&req)+uint64(i))
		if err != nil {
			return err
		}
		out[i] = got[0]
		req.Ended(i, out[i])
		return nil
	})
	return out, err
}

// rpc calls a method of the worker extension on all workers and returns their results, by rank.
func (v *vllm) rpc(ctx context.Context, method string, args ...string) ([]string, error) {
	timeout := 10 * time.Minute
	if end, ok := ctx.Deadline(); ok {
		timeout = time.Until(end)
	}
	in := map[string]any{"method": method, "args": append([]string{}, args...), "kwargs": map[string]any{},
		"timeout": math.Ceil(timeout.Seconds())}
	var out struct {
		Results []json.RawMessage `json:"results"`
	}
	err := v.http.Post(ctx, "/collective_rpc", in, &out)
	var refused *transport.StatusError
	switch {
	case transport.NoRoute(err):
		return nil, errors.New("POST /collective_rpc: not found. Run vLLM with VLLM_SERVER_DEV_MODE=1")
	case errors.As(err, &refused) && refused.Status >= 500:
		return nil, fmt.Errorf("%w (does vLLM run with --worker-extension-cls easyrl_worker.EasyRL?)", err)
	case err != nil:
		return nil, err
	case len(out.Results) == 0:
		return nil, fmt.Errorf("POST /collective_rpc: %s: no results, expected one per worker", method)
	}
	labels := make([]string, len(out.Results))
	for i, raw := range out.Results {
		labels[i] = transport.Text(raw)
	}
	return labels, nil
}

// verify returns an error unless all workers hold the weights of label. If one holds others, the error
// wraps inference.ErrStale.
func (v *vllm) verify(ctx context.Context, label string) error {
	labels, err := v.rpc(ctx, "easyrl_held")
	if err != nil {
		return err
	}
	for rank, l := range labels {
		if l != label {
			return fmt.Errorf("worker %d holds weights %.60q, expected %s: %w", rank, l, label, inference.ErrStale)
		}
	}
	return nil
}

// Publish makes the server read w from the store and verifies it.
func (v *vllm) Publish(ctx context.Context, w inference.Weights) (string, error) {
	if v.cfg.Adapters {
		return v.labelled.publish(ctx, w,
			labelledCalls{push: v.pushAdapter, verify: v.verifyAdapter, sampler: v.sampler})
	}
	return v.labelled.publish(ctx, w, labelledCalls{push: v.push, verify: v.verify, sampler: v.sampler})
}

// push makes the server load weights and empty its prefix cache. If the server supports that, push
// pauses it meanwhile.
func (v *vllm) push(ctx context.Context, folder, label string) (err error) {
	switch err := v.http.Command(ctx, "/pause?mode=abort&clear_cache=true"); { // aborts running requests
	case err == nil:
		defer func() {
			// Resume even if ctx has ended.
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), v.cfg.Stall,
				errors.New("POST /resume: no answer"))
			defer cancel()
			err = errors.Join(err, v.http.Command(ctx, "/resume"))
		}()
	case !transport.NoRoute(err): // older servers cannot pause
		return err
	}
	labels, err := v.rpc(ctx, "easyrl_load", folder, label)
	if err != nil {
		return err
	}
	for rank, l := range labels {
		if l != label {
			return fmt.Errorf("POST /collective_rpc: worker %d returned %.300q for easyrl_load, expected %s",
				rank, l, label)
		}
	}
	if err := v.resetCache(ctx); err != nil {
		return err
	}
	return v.verify(ctx, label)
}

// resetCache empties the prefix cache, because a cache outside the server may ignore the salt. vLLM
// refuses while a request uses part of the cache, as an aborted one does for a moment, so resetCache
// tries again for about cfg.Stall.
func (v *vllm) resetCache(ctx context.Context) error {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		var out struct {
			Success *bool `json:"success"`
		}
		err := v.http.Do(ctx,
			transport.Call{Method: http.MethodPost, Path: v.resetPath, Body: []byte{}, Long: true}, &out)
		switch {
		case errors.Is(err, transport.ErrBody): // older servers answer with an empty body
			return nil
		case err != nil:
			return err
		case out.Success == nil || *out.Success:
			return nil
		case wait > v.cfg.Stall:
			return fmt.Errorf("POST %s: success is false, expected true: a request holds part of the prefix cache",
				v.resetPath)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

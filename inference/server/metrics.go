package server

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/wire"
)

// latencies returns the upper bounds of the buckets of request times, in seconds.
func latencies() []float64 {
	return []float64{0.1, 0.3, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800}
}

// counters counts what a server has done since it started. Its zero value is ready.
type counters struct {
	mu            sync.Mutex
	stop, length  int64   // successful responses by finish reason
	abort         int64   // requests whose clients left
	failed        int64   // requests that ended with another error
	requests      int64   // successful requests
	seconds       float64 // total time of successful requests
	buckets       []int64 // successful requests that took at most each of latencies; nil before the first
	updates       int64   // weight updates
	updateSeconds float64 // total time of weight updates
}

// count adds a request that reached the backend, with its result and duration.
func (c *counters) count(out []inference.Completion, err error, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if errors.Is(err, wire.ErrGone) {
			c.abort++
		} else {
			c.failed++
		}
		return
	}
	for i := range out {
		if out[i].Finish == "length" {
			c.length++
		} else {
			c.stop++
		}
	}
	bounds := latencies()
	if c.buckets == nil {
		c.buckets = make([]int64, len(bounds))
	}
	c.requests++
	c.seconds += d.Seconds()
	for i, bound := range bounds {
		if d.Seconds() <= bound {
			c.buckets[i]++
		}
	}
}

// update adds a successful weight update.
func (c *counters) update(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updates++
	c.updateSeconds += d.Seconds()
}

// metrics answers in Prometheus's format, with vLLM's names for metrics of the same
// meaning.
func (s *Server) metrics(ctx *fasthttp.RequestCtx) error {
	load := s.backend.Load()
	version, _ := s.backend.Held()
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	e := &exposition{labels: `model_name="` + escape.Replace(s.backend.ID()) + `",engine="0"`}
	e.metric("vllm:num_requests_running", "gauge", "Responses being sampled.", float64(load.Running))
	e.metric("vllm:num_requests_waiting", "gauge", "Responses waiting.",
		float64(load.Waiting)+float64(s.completions.waiting.Load()))
	if load.CachePages > 0 {
		e.metric("vllm:kv_cache_usage_perc", "gauge", "Share of the key-value cache in use, 0 to 1.",
			1-float64(load.FreePages)/float64(load.CachePages))
	}
	e.metric("vllm:num_preemptions_total", "counter", "Responses preempted to free their cache.",
		float64(load.Preemptions))
	e.metric("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", float64(load.PromptTokens))
	e.metric("vllm:generation_tokens_total", "counter", "Tokens sampled.", float64(load.Tokens))

	c := s.served
	c.mu.Lock()
	defer c.mu.Unlock()
	const success = "vllm:request_success_total"
	e.family(success, "counter", "Responses by finish reason; abort counts requests whose clients left.")
	e.sample(success, `,finished_reason="stop"`, float64(c.stop))
	e.sample(success, `,finished_reason="length"`, float64(c.length))
	e.sample(success, `,finished_reason="abort"`, float64(c.abort))
	const latency = "vllm:e2e_request_latency_seconds"
	e.family(latency, "histogram", "Time from a request's start on the engine to its end.")
	for i, bound := range latencies() {
		n := int64(0)
		if c.buckets != nil {
			n = c.buckets[i]
		}
		e.sample(latency+"_bucket", `,le="`+strconv.FormatFloat(bound, 'g', -1, 64)+`"`, float64(n))
	}
	e.sample(latency+"_bucket", `,le="+Inf"`, float64(c.requests))
	e.sample(latency+"_sum", "", c.seconds)
	e.sample(latency+"_count", "", float64(c.requests))
	e.metric("easyrl:request_failures_total", "counter", "Requests that failed on the engine.", float64(c.failed))
	e.metric("easyrl:weight_version", "gauge", "Version of the current weights.", float64(version))
	e.metric("easyrl:weight_updates_total", "counter", "Weight updates.", float64(c.updates))
	e.metric("easyrl:weight_update_seconds_total", "counter", "Time spent on weight updates.", c.updateSeconds)
	e.process()
	ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	ctx.SetBodyString(e.String())
	return nil
}

package remote

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

func TestPulse(t *testing.T) {
	t.Parallel()
	const vllm = `# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:time_per_output_token_seconds_sum{engine="0",model_name="m"} 3.5
process_cpu_seconds_total 12.5
http_requests_total{handler="/metrics"} 9
`
	require.Equal(t, "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 1.5e+06\n", pulse(vllm))
	require.Equal(t, "sglang:num_used_tokens{tp_rank=\"0\"} 12\nsglang:gen_throughput 3.5\n",
		pulse("sglang:num_used_tokens{tp_rank=\"0\"} 12\nsglang:gen_throughput 3.5\nsglang:http_requests_total 5\n"))
	require.Empty(t, pulse("<html>prompt_tokens 1"))
	for _, kind := range allKinds() {
		f := newFake(t, kind)
		inst := f.dial().(inference.Pulser)
		answer := func(status int, page string) {
			f.set(func() {
				f.fault = on("/metrics", func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, page)
				})
			})
		}
		answer(http.StatusOK, vllm)
		got, err := inst.Pulse(t.Context())
		require.NoError(t, err)
		require.Equal(t, pulse(vllm), got)
		answer(http.StatusNotFound, "")
		got, err = inst.Pulse(t.Context())
		require.NoError(t, err, "the server is healthy")
		require.Empty(t, got)
	}
}

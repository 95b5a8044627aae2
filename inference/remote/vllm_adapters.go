package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/remote/internal/transport"
)

// adapterPrefix and a label form the name of an adapter that a trainer loads.
const adapterPrefix = "easyrl-"

// adapterRemedy tells users what to do if a server does not compute with the complete adapter.
const adapterRemedy = "vLLM must serve the model in model.path, without --lora-target-modules"

// modelOf returns the name of the model for requests under label: that of the adapter, or that of the
// model if requests use no adapter.
func (v *vllm) modelOf(label string) string {
	if v.cfg.Adapters && label != "" {
		return adapterPrefix + label
	}
	return v.model
}

// markLost returns err, wrapped in inference.ErrStale if err shows that the server does not hold the
// adapter of label, for example because it restarted.
func (v *vllm) markLost(label string, err error) error {
	if name := v.modelOf(label); name != v.model && transport.NoRoute(err) {
		return fmt.Errorf("%s (adapter %s is not loaded): %w", err.Error(), name, inference.ErrStale)
	}
	return err
}

// verifyAdapter returns an error unless the server holds the adapter of label.
func (v *vllm) verifyAdapter(ctx context.Context, label string) error {
	names, err := v.models(ctx)
	if err != nil {
		return err
	}
	if name := v.modelOf(label); !slices.Contains(names, name) {
		return fmt.Errorf("GET /v1/models: no adapter %s: %w", name, inference.ErrStale)
	}
	return nil
}

// models returns the names of the server's models and adapters.
func (v *vllm) models(ctx context.Context) (names []string, err error) {
	list, err := v.listModels(ctx)
	for _, m := range list {
		names = append(names, m.ID)
	}
	return names, err
}

// pushAdapter makes the server load the adapter in folder under the name of label, and unload earlier
// ones. It need not pause the server, because vLLM computes each request with the adapter that the
// request names. No request uses an earlier one, because a fleet ends its requests before it
// publishes.
func (v *vllm) pushAdapter(ctx context.Context, folder, label string) error {
	before, err := v.models(ctx)
	if err != nil {
		return err
	}
	name := v.modelOf(label)
	if slices.Contains(before, name) { // if it were replaced in place, vLLM would read it again in every step
		if err := v.unload(ctx, name); err != nil {
			return err
		}
	}
	if err := v.http.Post(ctx, "/v1/load_lora_adapter", map[string]any{"lora_name": name, "lora_path": folder},
		nil); err != nil {
		return refusedAdapter(err)
	}
	if v.external { // the external cache may ignore adapter names and salts
		if err := v.resetCache(ctx); err != nil {
			return err
		}
	}
	for _, old := range before {
		if old != name && strings.HasPrefix(old, adapterPrefix) {
			_ = v.unload(ctx, old) // the next publish tries again; no request names it
		}
	}
	return v.verifyAdapter(ctx, label)
}

// refusedAdapter returns err, the reason why vLLM did not load an adapter, with advice on how to start
// vLLM.
func refusedAdapter(err error) error {
	if transport.NoRoute(err) && !strings.Contains(err.Error(), "No adapter found") {
		return errors.New("POST /v1/load_lora_adapter: not found. Run vLLM with --enable-lora and " +
			"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
	}
	return fmt.Errorf("%w. Run vLLM with --enable-lora and a --max-lora-rank of at least torch.lora_rank", err)
}

// unload unloads an adapter, if the server holds it.
func (v *vllm) unload(ctx context.Context, name string) error {
	err := v.http.Post(ctx, "/v1/unload_lora_adapter", map[string]any{"lora_name": name}, nil)
	if transport.NoRoute(err) {
		return nil
	}
	return err
}

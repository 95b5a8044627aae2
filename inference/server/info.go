package server

import (
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
)

// health answers 200 if the server accepts requests, and 503 otherwise.
func (s *Server) health(ctx *fasthttp.RequestCtx) error {
	if err := s.ready(); err != nil {
		return err
	}
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"status": "ok"})
	return nil
}

// moduleVersion returns the version of the command's module.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}

// version answers with the version of the command's module.
func version(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"version": moduleVersion(), "engine": "easyrl"})
	return nil
}

// info answers with the model, the weights and the limits of the server.
func (s *Server) info(ctx *fasthttp.RequestCtx) error {
	model := s.backend.Info()
	version, checksum := s.backend.Held()
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{
		"engine": "easyrl", "version": moduleVersion(),
		"served_model_name": s.backend.ID(), "model_path": model.Root, "max_model_len": model.Context, "vocab_size": model.Vocab,
		"weight_version": version, "weight_checksum": checksum, "world_size": 1, "cores": model.Cores,
		"capacity": s.backend.Capacity(), "max_concurrent": s.cfg.MaxConcurrent, "max_queue": s.cfg.MaxQueue, "max_body": s.cfg.MaxBody,
	})
	return nil
}

// worldSize answers with the number of processes that share the model: trainers ask for it.
func worldSize(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"world_size": 1})
	return nil
}

// load answers with the number of running and waiting requests.
func (s *Server) load(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"server_load": s.Running()})
	return nil
}

// drained starts draining and answers with the number of running requests.
func (s *Server) drained(ctx *fasthttp.RequestCtx) error {
	s.gate.drain()
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"running": s.Running()})
	return nil
}

// ready returns an error if the server would refuse every request.
func (s *Server) ready() error {
	if _, checksum := s.backend.Held(); checksum == "" {
		return fmt.Errorf("no weights yet: %w", inference.ErrClosed)
	}
	if s.gate.drains() {
		return fmt.Errorf("draining: %w", inference.ErrClosed)
	}
	return nil
}

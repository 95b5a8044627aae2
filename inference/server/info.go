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

// version answers with the version of the command's module.
func version(ctx *fasthttp.RequestCtx) error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"version": version, "engine": "easyrl"})
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

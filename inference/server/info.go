package server

import (
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
)

// health is 200 where requests are taken and 503 elsewhere.
func (s *Server) health(ctx *fasthttp.RequestCtx) error {
	if err := s.ready(); err != nil {
		return err
	}
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"status": "ok"})
	return nil
}

// version is that of the module that the command was built from.
func version(ctx *fasthttp.RequestCtx) error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"version": version, "engine": "easyrl"})
	return nil
}

// load is the number of requests that run or wait.
func (s *Server) load(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"server_load": s.Running()})
	return nil
}

// drained stops new requests and tells how many run still.
func (s *Server) drained(ctx *fasthttp.RequestCtx) error {
	s.gate.drain()
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"running": s.Running()})
	return nil
}

// ready is an error where a request would be refused whatever it asks.
func (s *Server) ready() error {
	if _, checksum := s.backend.Held(); checksum == "" {
		return fmt.Errorf("no weights yet: %w", inference.ErrClosed)
	}
	if s.gate.drains() {
		return fmt.Errorf("draining: %w", inference.ErrClosed)
	}
	return nil
}

package server

import (
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/job"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
	"github.com/easyrl/easyrl/inference/server/internal/openapi"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
)

const engineName = "easyrl"

// health answers 200 if the server accepts requests, and 503 otherwise.
func (s *Server) health(ctx *fasthttp.RequestCtx) error {
	if err := s.ready(); err != nil {
		return err
	}
	reply.JSON(ctx, fasthttp.StatusOK, openai.HealthStatus{Status: "ok"})
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
	reply.JSON(ctx, fasthttp.StatusOK, openai.EngineVersion{Version: moduleVersion(), Engine: engineName})
	return nil
}

// info answers with the model, the weights and the limits of the server.
func (s *Server) info(ctx *fasthttp.RequestCtx) error {
	model := s.backend.Info()
	version, checksum := s.backend.Held()
	reply.JSON(ctx, fasthttp.StatusOK, openai.ServerInfo{
		Engine: engineName, Version: moduleVersion(), Model: s.backend.ID(), Path: model.Root, Context: model.Context, Vocab: model.Vocab,
		WeightVersion: version, Checksum: checksum, WorldSize: 1, Cores: model.Cores,
		Capacity: s.backend.Capacity(), MaxConcurrent: s.cfg.MaxConcurrent, MaxQueue: s.cfg.MaxQueue, MaxBody: s.cfg.MaxBody,
	})
	return nil
}

// worldSize answers with the number of processes that share the model: trainers ask for it.
func worldSize(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, openai.WorldSize{Size: 1})
	return nil
}

// load answers with the number of running and waiting requests.
func (s *Server) load(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, openai.ServerLoad{Load: s.Running()})
	return nil
}

// drained starts draining and answers with the number of running requests.
func (s *Server) drained(ctx *fasthttp.RequestCtx) error {
	s.gate.drain()
	reply.JSON(ctx, fasthttp.StatusOK, openai.Draining{Running: s.Running()})
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

// document answers with the description of the interface.
func document(ctx *fasthttp.RequestCtx) error {
	var t tokenizing
	var d detokenizing
	var c claim
	generate, sampling := job.GenerateFields()
	reply.JSON(ctx, fasthttp.StatusOK, openapi.Document(moduleVersion(), openapi.Requests{
		Completion: job.Fields(false), Chat: job.Fields(true), Generate: generate, Sampling: sampling,
		Tokenize: t.fields(), Detokenize: d.fields(), Trainer: c.fields()}))
	return nil
}

package server

import (
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/server/internal/api"
)

const engineName = "easyrl"

// health answers 200 if the server accepts requests, and 503 otherwise.
func (s *Server) health(ctx *fasthttp.RequestCtx) error {
	if err := s.ready(); err != nil {
		return err
	}
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
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
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Version string `json:"version"`
		Engine  string `json:"engine"`
	}{moduleVersion(), engineName})
	return nil
}

// serverInfo describes the model, the weights and the limits of the server.
type serverInfo struct {
	Engine        string `json:"engine"`
	Version       string `json:"version"`
	Model         string `json:"served_model_name"`
	Path          string `json:"model_path"`
	Context       int    `json:"max_model_len"`
	Vocab         int    `json:"vocab_size"`
	WeightVersion int64  `json:"weight_version"`
	Checksum      string `json:"weight_checksum"`
	WorldSize     int    `json:"world_size"`
	Cores         int    `json:"cores"`
	Capacity      int    `json:"capacity"`
	MaxConcurrent int    `json:"max_concurrent"`
	MaxQueue      int    `json:"max_queue"`
	MaxBody       int64  `json:"max_body"`

	Numerics        string `json:"numerics,omitempty"`
	NumericsVersion int    `json:"numerics_version,omitempty"`
}

// info answers with the model, the weights and the limits of the server.
func (s *Server) info(ctx *fasthttp.RequestCtx) error {
	model := s.backend.Info()
	version, checksum := s.backend.Held()
	writeJSON(ctx, fasthttp.StatusOK, serverInfo{
		Engine: engineName, Version: moduleVersion(), Model: s.backend.ID(), Path: model.Root,
		Context: model.Context, Vocab: model.Vocab,
		WeightVersion: version, Checksum: checksum, WorldSize: 1, Cores: model.Cores,
		Capacity: s.backend.Capacity(), MaxConcurrent: s.cfg.MaxConcurrent, MaxQueue: s.cfg.MaxQueue,
		MaxBody: s.cfg.MaxBody, Numerics: model.Numerics.Name, NumericsVersion: model.Numerics.Version,
	})
	return nil
}

// worldSize answers with 1, the number of processes that share the model. Trainers made for vLLM ask
// for it.
func worldSize(ctx *fasthttp.RequestCtx) error {
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Size int `json:"world_size"`
	}{1})
	return nil
}

// load answers with the number of running and waiting requests.
func (s *Server) load(ctx *fasthttp.RequestCtx) error {
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Load int `json:"server_load"`
	}{s.Running()})
	return nil
}

// startDrain starts draining and answers with the number of running requests.
func (s *Server) startDrain(ctx *fasthttp.RequestCtx) error {
	s.gate.drain()
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Running int `json:"running"`
	}{s.Running()})
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
	document, err := api.Document(moduleVersion())
	if err != nil {
		return err
	}
	writeJSON(ctx, fasthttp.StatusOK, document)
	return nil
}

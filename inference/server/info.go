package server

import (
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/fields"
)

// health is 200 where requests are taken and 503 elsewhere.
func (s *Server) health(ctx *fasthttp.RequestCtx) error {
	if err := s.ready(); err != nil {
		return err
	}
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"status": "ok"})
	return nil
}

// version is that of the module that the command was built from.
func (s *Server) version(ctx *fasthttp.RequestCtx) error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"version": version, "engine": "easyrl"})
	return nil
}

// load is the number of requests that run or wait.
func (s *Server) load(ctx *fasthttp.RequestCtx) error {
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"server_load": s.Running()})
	return nil
}

func (s *Server) card() map[string]any {
	info := s.backend.Info()
	return map[string]any{"id": s.backend.ID(), "object": "model", "created": info.Created, "owned_by": "easyrl",
		"root": info.Root, "parent": nil, "max_model_len": info.Context}
}

func (s *Server) models(ctx *fasthttp.RequestCtx) error {
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"object": "list", "data": []any{s.card()}})
	return nil
}

func (s *Server) model(ctx *fasthttp.RequestCtx, name string) error {
	if name != s.backend.ID() {
		return s.noModel(name)
	}
	writeJSON(ctx, fasthttp.StatusOK, s.card())
	return nil
}

// tokenize gives the ids of a prompt or of a conversation.
func (s *Server) tokenize(ctx *fasthttp.RequestCtx) error {
	r := request{chat: true, n: 1}
	var prompt *string
	var pieces bool
	if err := s.small(ctx, &r, []fields.Field{fields.To("prompt", &prompt, "a string"), fields.To("messages", &r.messages, "messages"),
		fields.To("tools", &r.tools, "tools"), fields.To("return_token_strs", &pieces, "true or false")}); err != nil {
		return err
	}
	size := len(r.messages) + len(r.tools)
	if prompt != nil {
		size = len(*prompt)
	}
	done, err := s.alone(size)
	if err != nil {
		return err
	}
	defer done()
	var ids []int32
	if prompt != nil {
		ids, err = s.text.Encode(*prompt)
	} else {
		r.toolChoice = []byte(`"none"`)
		if err = r.validateChat(); err == nil {
			ids, err = s.text.Chat(r.messages, r.tools)
		}
	}
	if err != nil {
		return err
	}
	out := map[string]any{"count": len(ids), "max_model_len": s.backend.Info().Context, "tokens": append([]int32{}, ids...)}
	if pieces {
		strs := make([]string, len(ids))
		for i, id := range ids {
			strs[i], _ = s.text.Piece(id)
		}
		out["token_strs"] = strs
	}
	writeJSON(ctx, fasthttp.StatusOK, out)
	return nil
}

// detokenize gives the text of ids.
func (s *Server) detokenize(ctx *fasthttp.RequestCtx) error {
	var r request
	var ids []int32
	if err := s.small(ctx, &r, []fields.Field{fields.To("tokens", &ids, "token ids")}); err != nil {
		return err
	}
	vocab := s.backend.Info().Vocab
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return invalid("tokens", "tokens[%d] is %d, expected 0 to %d", i, id, vocab-1)
		}
	}
	writeJSON(ctx, fasthttp.StatusOK, map[string]any{"prompt": s.text.Decode(ids)})
	return nil
}

// small reads a request that a tokenizer answers.
func (s *Server) small(ctx *fasthttp.RequestCtx, r *request, list []fields.Field) error {
	data, release, err := s.readBody(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := fields.Decode(data, append(list, fields.To("model", &r.model, "a string"))); err != nil {
		return err
	}
	switch {
	case r.model != "" && r.model != s.backend.ID():
		return s.noModel(r.model)
	case s.text == nil:
		return invalid("", "model %s has no tokenizer", s.backend.ID())
	}
	return nil
}

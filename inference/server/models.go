package server

import (
	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/job"
	"github.com/easyrl/easyrl/inference/server/internal/reply"
	"github.com/easyrl/easyrl/internal/lossy"
)

// models answers calls about the model and its tokenizer.
type models struct {
	backend Backend
	text    Text // may be nil
	bodies  *bodies
}

// card describes the model as in a list of models.
func (m *models) card() map[string]any {
	info := m.backend.Info()
	return map[string]any{"id": m.backend.ID(), "object": "model", "created": info.Created, "owned_by": "easyrl",
		"root": info.Root, "parent": nil, "max_model_len": info.Context}
}

// list answers with the list of models, which has one entry.
func (m *models) list(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"object": "list", "data": []any{m.card()}})
	return nil
}

// one answers with the model of a name.
func (m *models) one(ctx *fasthttp.RequestCtx, name string) error {
	if name != m.backend.ID() {
		return modelOf(m.backend, m.text, m.bodies).None(name)
	}
	reply.JSON(ctx, fasthttp.StatusOK, m.card())
	return nil
}

// tokenize answers with the token IDs of a prompt or a conversation.
func (m *models) tokenize(ctx *fasthttp.RequestCtx) error {
	r := job.Request{Chat: true, N: 1}
	var prompt *string
	var pieces bool
	if err := m.small(ctx, &r, append(r.Conversation(), fields.To("prompt", &prompt, "a string"),
		fields.To("return_token_strs", &pieces, "true or false"))); err != nil {
		return err
	}
	size := len(r.Messages) + len(r.Tools) + len(r.Variables)
	if prompt != nil {
		size = len(*prompt)
	}
	done, err := m.bodies.alone(size)
	if err != nil {
		return err
	}
	defer done()
	var ids []int32
	if prompt != nil {
		ids, err = m.text.Encode(*prompt)
	} else {
		if err = r.ValidateChat(); err == nil {
			ids, err = m.text.Chat(r.Messages, r.Tools, r.Variables)
		}
	}
	if err != nil {
		return err
	}
	out := map[string]any{"count": len(ids), "max_model_len": m.backend.Info().Context, "tokens": append([]int32{}, ids...)}
	if pieces {
		strs := make([]string, len(ids))
		for i, id := range ids {
			piece, _ := m.text.Piece(id)
			strs[i] = lossy.String(piece)
		}
		out["token_strs"] = strs
	}
	reply.JSON(ctx, fasthttp.StatusOK, out)
	return nil
}

// detokenize answers with the text of token IDs.
func (m *models) detokenize(ctx *fasthttp.RequestCtx) error {
	var r job.Request
	var ids []int32
	if err := m.small(ctx, &r, []fields.Field{fields.To("tokens", &ids, "token ids")}); err != nil {
		return err
	}
	vocab := m.backend.Info().Vocab
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return reply.Invalid("tokens", "tokens[%d] is %d, expected 0 to %d", i, id, vocab-1)
		}
	}
	reply.JSON(ctx, fasthttp.StatusOK, map[string]any{"prompt": m.text.Decode(ids)})
	return nil
}

// small decodes a request for the tokenizer.
func (m *models) small(ctx *fasthttp.RequestCtx, r *job.Request, list []fields.Field) error {
	data, release, err := m.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := fields.Decode(data, append(list, fields.To("model", &r.Model, "a string"))); err != nil {
		return err
	}
	switch {
	case r.Model != "" && r.Model != m.backend.ID():
		return modelOf(m.backend, m.text, m.bodies).None(r.Model)
	case m.text == nil:
		return reply.Invalid("", "model %s has no tokenizer", m.backend.ID())
	}
	return nil
}

package server

import (
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/fields"
	"github.com/easyrl/easyrl/inference/server/internal/job"
	"github.com/easyrl/easyrl/inference/server/internal/openai"
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
func (m *models) card() openai.ModelCard {
	info := m.backend.Info()
	return openai.ModelCard{ID: m.backend.ID(), Object: "model", Created: info.Created, Owner: engineName, Root: info.Root, Context: info.Context}
}

// list answers with the list of models, which has one entry.
func (m *models) list(ctx *fasthttp.RequestCtx) error {
	reply.JSON(ctx, fasthttp.StatusOK, openai.ModelList{Object: "list", Data: []openai.ModelCard{m.card()}})
	return nil
}

// one answers with the model of a name.
func (m *models) one(ctx *fasthttp.RequestCtx) error {
	name := strings.TrimPrefix(string(ctx.Path()), modelPath)
	if name != m.backend.ID() {
		return modelOf(m.backend, m.text, m.bodies).None(name)
	}
	reply.JSON(ctx, fasthttp.StatusOK, m.card())
	return nil
}

// tokenizing is a request for the tokens of a prompt or a conversation.
type tokenizing struct {
	job.Request
	prompt *string
	pieces bool
}

func (r *tokenizing) fields() []fields.Field {
	return append(r.Conversation(), fields.To("prompt", &r.prompt, "a string"), fields.To("return_token_strs", &r.pieces, "true or false"),
		fields.To("model", &r.Model, "a string"))
}

// size returns the number of bytes to tokenize.
func (r *tokenizing) size() int {
	if r.prompt != nil {
		return len(*r.prompt)
	}
	return len(r.Messages) + len(r.Tools) + len(r.Variables)
}

// tokenize answers with the token IDs of a prompt or a conversation.
func (m *models) tokenize(ctx *fasthttp.RequestCtx) error {
	r := tokenizing{Request: job.Request{Chat: true}}
	if err := m.small(ctx, &r.Model, r.fields()); err != nil {
		return err
	}
	if r.prompt != nil && (r.Messages != nil || r.Tools != nil || r.Variables != nil) {
		return reply.Invalid("prompt", "prompt beside messages, tools or chat_template_kwargs, expected one or the other")
	}
	done, err := m.bodies.alone(r.size())
	if err != nil {
		return err
	}
	defer done()
	var ids []int32
	if r.prompt != nil {
		ids, err = m.text.Encode(*r.prompt)
	} else if err = r.ValidateChat(); err == nil {
		ids, err = m.text.Chat(r.Messages, r.Tools, r.Variables)
	}
	if err != nil {
		return err
	}
	out := openai.TokenizeAnswer{Count: len(ids), Context: m.backend.Info().Context, IDs: append([]int32{}, ids...)}
	if r.pieces {
		for _, id := range ids {
			piece, _ := m.text.Piece(id)
			out.Pieces = append(out.Pieces, lossy.String(piece))
		}
	}
	reply.JSON(ctx, fasthttp.StatusOK, out)
	return nil
}

// detokenizing is a request for the text of tokens.
type detokenizing struct {
	model string
	ids   fields.IDs
}

func (r *detokenizing) fields() []fields.Field {
	return []fields.Field{fields.To("tokens", &r.ids, "token ids"), fields.To("model", &r.model, "a string")}
}

// detokenize answers with the text of token IDs.
func (m *models) detokenize(ctx *fasthttp.RequestCtx) error {
	var r detokenizing
	if err := m.small(ctx, &r.model, r.fields()); err != nil {
		return err
	}
	if r.ids == nil {
		return reply.Invalid("tokens", "no tokens, expected token ids")
	}
	vocab := m.backend.Info().Vocab
	for i, id := range r.ids {
		if id < 0 || int(id) >= vocab {
			return reply.Invalid("tokens", "tokens[%d] is %d, expected 0 to %d", i, id, vocab-1)
		}
	}
	reply.JSON(ctx, fasthttp.StatusOK, openai.DetokenizeAnswer{Text: m.text.Decode(r.ids)})
	return nil
}

// small decodes a request for the tokenizer of the model that it names.
func (m *models) small(ctx *fasthttp.RequestCtx, model *string, list []fields.Field) error {
	data, release, err := m.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := fields.Decode(data, list); err != nil {
		return err
	}
	switch {
	case *model != "" && *model != m.backend.ID():
		return modelOf(m.backend, m.text, m.bodies).None(*model)
	case m.text == nil:
		return reply.Invalid("", "model %s has no tokenizer", m.backend.ID())
	}
	return nil
}

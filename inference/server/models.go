package server

import (
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/easyrl/easyrl/inference/server/internal/api"
	"github.com/easyrl/easyrl/internal/lossy"
)

// models answers requests about the model and to its tokenizer.
type models struct {
	backend Backend
	model   *api.Model // set by Serve
	bodies  *bodies
}

// modelCard describes the model in a list of models.
type modelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	Owner   string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
	Context int     `json:"max_model_len"`
}

// card returns the description of the server's model.
func (m *models) card() modelCard {
	info := m.backend.Info()
	return modelCard{ID: m.model.ID, Object: "model", Created: info.Created, Owner: engineName, Root: info.Root,
		Context: info.Context}
}

// list answers with the list of models, which has one entry.
func (m *models) list(ctx *fasthttp.RequestCtx) error {
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", []modelCard{m.card()}})
	return nil
}

// one answers with the model that the path names.
func (m *models) one(ctx *fasthttp.RequestCtx) error {
	name := strings.TrimPrefix(string(ctx.Path()), modelPath)
	if name != m.model.ID {
		return m.model.NotFound(name)
	}
	writeJSON(ctx, fasthttp.StatusOK, m.card())
	return nil
}

// tokenize answers with the token IDs of a prompt or a conversation.
func (m *models) tokenize(ctx *fasthttp.RequestCtx) error {
	data, release, err := m.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := api.DecodeTokenize(data)
	if err == nil {
		err = m.check(r.Model)
	}
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return err
	}
	done, err := m.bodies.alone(r.Size())
	if err != nil {
		return err
	}
	defer done()
	var ids []int32
	if r.Text != nil {
		ids, err = m.model.Text.Encode(*r.Text)
	} else {
		ids, err = m.model.Text.Chat(r.Messages, r.Tools, r.Variables)
	}
	if err != nil {
		return err
	}
	out := struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		IDs     []int32  `json:"tokens"`
		Pieces  []string `json:"token_strs,omitempty"`
	}{Count: len(ids), Context: m.model.Context, IDs: append([]int32{}, ids...)}
	if r.Pieces {
		for _, id := range ids {
			piece, _ := m.model.Text.Piece(id)
			out.Pieces = append(out.Pieces, lossy.String(piece))
		}
	}
	writeJSON(ctx, fasthttp.StatusOK, out)
	return nil
}

// detokenize answers with the text of token IDs.
func (m *models) detokenize(ctx *fasthttp.RequestCtx) error {
	data, release, err := m.bodies.read(ctx)
	if err != nil {
		return err
	}
	defer release()
	r, err := api.DecodeDetokenize(data)
	if err == nil {
		err = m.check(r.Model)
	}
	if err == nil {
		err = r.Validate(m.model.Vocab)
	}
	if err != nil {
		return err
	}
	writeJSON(ctx, fasthttp.StatusOK, struct {
		Text string `json:"prompt"`
	}{m.model.Text.Decode(r.Tokens)})
	return nil
}

// check returns an error if name is not that of the server's model, or if the model has no tokenizer.
// An empty name means the server's model.
func (m *models) check(name string) error {
	switch {
	case name != "" && name != m.model.ID:
		return m.model.NotFound(name)
	case m.model.Text == nil:
		return api.Invalid("", "model %s has no tokenizer", m.model.ID)
	}
	return nil
}

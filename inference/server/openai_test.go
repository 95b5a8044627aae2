package server

import (
	"errors"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

func officialClient(t *testing.T, s *Server, token string) openai.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return openai.NewClient(option.WithBaseURL("http://"+s.Addr()+"/v1/"), option.WithAPIKey(token),
		option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: transport}))
}

// OpenAI's own client completes, chats, streams and understands errors.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, func(c *Config) { c.Token = "secret" })
	client := officialClient(t, s, "secret")
	ctx := t.Context()

	models, err := client.Models.List(ctx)
	require.NoError(t, err)
	require.Len(t, models.Data, 1)
	require.Equal(t, "tiny", models.Data[0].ID)

	params := openai.CompletionNewParams{Model: "tiny",
		Prompt:    openai.CompletionNewParamsPromptUnion{OfString: openai.String("Say this is a test")},
		MaxTokens: openai.Int(30), Seed: openai.Int(11), N: openai.Int(2), Logprobs: openai.Int(2),
		Stop: openai.CompletionNewParamsStopUnion{OfStringArray: []string{"!"}}}
	prompt, err := fakeText{}.Encode("Say this is a test")
	require.NoError(t, err)
	want, err := backend.Generate(ctx, inference.Request{PromptIDs: prompt, N: 2, Seed: 11,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 30, StopIDs: []int32{fakeEOS}}})
	require.NoError(t, err)
	got, err := client.Completions.New(ctx, params)
	require.NoError(t, err)
	require.Len(t, got.Choices, 2)
	require.EqualValues(t, len(prompt), got.Usage.PromptTokens)
	for i, c := range got.Choices {
		require.Equal(t, want[i].Text, c.Text)
		require.EqualValues(t, want[i].Finish, c.FinishReason)
		require.Len(t, c.Logprobs.TopLogprobs[0], 2)
		for k, l := range c.Logprobs.TokenLogprobs {
			require.Equal(t, want[i].Logprobs[k], float32(l))
		}
	}

	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Completions.NewStreaming(ctx, params)
	texts := make([]string, 2)
	var tokens, likeliest int64
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			texts[c.Index] += c.Text
			likeliest += int64(len(c.Logprobs.TopLogprobs))
		}
		tokens = max(tokens, stream.Current().Usage.CompletionTokens)
	}
	require.NoError(t, stream.Err())
	require.Equal(t, []string{want[0].Text, want[1].Text}, texts)
	require.EqualValues(t, len(want[0].IDs)+len(want[1].IDs), tokens)
	require.Equal(t, tokens, likeliest)
}

func TestOfficialClientChat(t *testing.T) {
	t.Parallel()
	s := serve(t, newFake(), fakeText{}, nil)
	client := officialClient(t, s, "none")
	ctx := t.Context()
	params := openai.ChatCompletionNewParams{Model: "tiny", Seed: openai.Int(3), MaxCompletionTokens: openai.Int(25),
		Logprobs: openai.Bool(true), TopLogprobs: openai.Int(2),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."),
			openai.UserMessage("Hello!")}}
	got, err := client.Chat.Completions.New(ctx, params)
	require.NoError(t, err)
	require.Len(t, got.Choices, 1)
	require.NotEmpty(t, got.Choices[0].Message.Content)
	require.Len(t, got.Choices[0].Logprobs.Content, int(got.Usage.CompletionTokens))
	require.Len(t, got.Choices[0].Logprobs.Content[0].TopLogprobs, 2)

	stream := client.Chat.Completions.NewStreaming(ctx, params)
	var whole openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, whole.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, got.Choices[0].Message.Content, whole.Choices[0].Message.Content)
	require.Equal(t, got.Choices[0].FinishReason, whole.Choices[0].FinishReason)
}

func TestOfficialClientErrors(t *testing.T) {
	t.Parallel()
	backend := newFake()
	s := serve(t, backend, fakeText{}, func(c *Config) { c.Token = "secret" })
	ctx := t.Context()
	chat := func(token, model string, change func(*openai.ChatCompletionNewParams)) *openai.Error {
		client := officialClient(t, s, token)
		params := openai.ChatCompletionNewParams{Model: model,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")}}
		if change != nil {
			change(&params)
		}
		_, err := client.Chat.Completions.New(ctx, params)
		var fault *openai.Error
		require.True(t, errors.As(err, &fault), "%v", err)
		return fault
	}
	fault := chat("wrong", "tiny", nil)
	require.Equal(t, http.StatusUnauthorized, fault.StatusCode)
	require.Equal(t, "invalid_api_key", fault.Code)
	fault = chat("secret", "gpt-9", nil)
	require.Equal(t, http.StatusNotFound, fault.StatusCode)
	require.Equal(t, "model_not_found", fault.Code)
	fault = chat("secret", "tiny", func(p *openai.ChatCompletionNewParams) { p.PresencePenalty = openai.Float(1) })
	require.Equal(t, http.StatusBadRequest, fault.StatusCode)
	require.Equal(t, "presence_penalty", fault.Param)
	require.Equal(t, "invalid_request_error", fault.Type)

	backend.nan = true // an error in the middle of a stream
	client := officialClient(t, s, "secret")
	stream := client.Chat.Completions.NewStreaming(ctx,
		openai.ChatCompletionNewParams{Model: "tiny", MaxTokens: openai.Int(4),
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")}})
	for stream.Next() { //nolint:revive // drains the stream
	}
	require.Error(t, stream.Err())
}

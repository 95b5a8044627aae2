package main

import (
	"context"
	"fmt"
	"io"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// instant is an instance that answers immediately.
type instant struct{ id string }

func (i instant) ID() string    { return i.id }
func (i instant) Capacity() int { return 64 }
func (i instant) Close() error  { return nil }
func (i instant) Publish(_ context.Context, w inference.Weights) (string, error) {
	return w.Checksum(), nil
}

func (i instant) Generate(_ context.Context, req inference.Request) ([]inference.Completion, error) {
	out := make([]inference.Completion, req.N)
	for j := range out {
		out[j] = inference.Completion{IDs: []int32{1, 2}, Logprobs: []float32{-1, -1}, Text: "2", Finish: rollout.Stop,
			Version: req.Version}
	}
	return out, nil
}

// version is a published weight version without values.
type version int64

func (v version) Version() int64   { return int64(v) }
func (v version) Checksum() string { return "none" }

func (v version) WriteSafetensors(io.Writer) error { return nil }

// overhead measures the cost of the framework itself: n steps of 4,096 groups of 8. They
// pass through the producer, configured as in a run with a built-in reward; a fleet of
// instances that answer immediately; and the reward "exact". The trainer does nothing.
func overhead(instances, n int) (outcome, error) {
	ctx := context.Background()
	f, err := fleet.New(fleet.DefaultConfig())
	if err != nil {
		return outcome{}, err
	}
	for i := range instances {
		if err := f.Add(ctx, instant{fmt.Sprint("instance-", i)}); err != nil {
			return outcome{}, err
		}
	}
	score, err := reward.New(reward.Default(), 2)
	if err != nil {
		return outcome{}, err
	}
	cfg := producer.DefaultConfig()
	cfg.GroupSize = 8
	cfg.Scoring = 1
	cfg.Seed = 1
	cfg.Sampling = inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 2}
	p, err := producer.New(cfg, producer.Deps{Fleet: f, Reward: score})
	if err != nil {
		return outcome{}, err
	}
	prompts := make([]rollout.Prompt, groups)
	for i := range prompts {
		prompts[i] = rollout.Prompt{ID: fmt.Sprint(i), Text: "1+1=", IDs: []int32{1, 2, 3}, Answer: []byte("2")}
	}
	step := 0
	seconds, err := timed(n, func() error {
		step++
		if err := f.Publish(ctx, version(step)); err != nil {
			return err
		}
		stream := p.Start(ctx, rollout.Batch{Number: step, Version: int64(step), Prompts: prompts})
		got := 0
		for range stream.Groups() {
			got++
		}
		if _, err := stream.Wait(); err != nil {
			return err
		}
		if got != groups {
			return fmt.Errorf("got %d groups, expected %d", got, groups)
		}
		return nil
	})
	return outcome{Seconds: map[string][]float64{"": seconds}}, err
}

// groups is the number of groups in a measured step.
const groups = 4096

package producer_test

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// echo answers a prompt with its own tokens.
type echo struct{}

func (echo) TargetInFlight(int) int { return 4 }

func (echo) Generate(_ context.Context, req inference.Request) ([]inference.Completion, string, error) {
	out := make([]inference.Completion, req.N)
	for i := range out {
		out[i] = inference.Completion{IDs: req.PromptIDs, Logprobs: make([]float32, len(req.PromptIDs)),
			Finish: rollout.Stop, Version: req.Version}
	}
	return out, "echo-1", nil
}

// length rewards each token.
type length struct{}

func (length) Score(_ context.Context, in reward.Input) (reward.Score, error) {
	return reward.Score{Value: float64(in.Length)}, nil
}

// A producer samples and scores the batch of a step and streams its groups. The gate
// delivers them in the order of the prompts.
func ExampleProducer_Start() {
	cfg := producer.DefaultConfig()
	cfg.Gate, cfg.GroupSize = true, 2
	p, err := producer.New(cfg, producer.Deps{Fleet: echo{}, Reward: length{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream := p.Start(context.Background(), rollout.Batch{Number: 1, Version: 1,
		Prompts: []rollout.Prompt{{ID: "a", IDs: []int32{1}}, {ID: "b", IDs: []int32{1, 2, 3}}}})
	for g := range stream.Groups() {
		fmt.Println(g.Prompt.ID, len(g.Responses), g.Responses[0].Reward, g.Responses[0].Instance)
	}
	stats, err := stream.Wait()
	fmt.Println(stats.Failed, err)
	// Output:
	// a 2 1 echo-1
	// b 2 3 echo-1
	// 0 <nil>
}

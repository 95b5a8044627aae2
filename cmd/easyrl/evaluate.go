package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/sourcegraph/conc/pool"

	"github.com/easyrl/easyrl/evaluate"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// evalSet is a held-out set of prompts.
type evalSet struct {
	name    string // the file's, without extension
	prompts []rollout.Prompt
}

// evaluation scores the policy on held-out sets. The draws are the same at each
// call, so that two calls differ by the weights alone.
type evaluation struct {
	sets     []evalSet
	k        int
	sampling inference.Sampling
	seed     uint64
	fleet    *inference.Fleet
	score    reward.Func
	text     func(ids []int32) string
}

// readSets reads the files of held-out prompts, the first limit of each or, with
// 0, all.
func readSets(files []string, limit int, read func(paths []string) ([][]rollout.Prompt, error)) ([]evalSet, error) {
	if len(files) == 0 {
		return nil, nil
	}
	lists, err := read(files)
	if err != nil {
		return nil, err
	}
	var sets []evalSet
	for i, prompts := range lists {
		if limit > 0 && len(prompts) > limit {
			prompts = prompts[:limit]
		}
		base := filepath.Base(files[i])
		sets = append(sets, evalSet{name: strings.TrimSuffix(base, filepath.Ext(base)), prompts: prompts})
	}
	return sets, nil
}

// run scores all sets: for each set's name, eval/<name>/mean@k is the mean
// reward and eval/<name>/pass@k the unbiased estimate of the share of prompts of
// which one of k responses has the full reward of 1. score is the mean of the sets' means.
func (e *evaluation) run(ctx context.Context) (metrics map[string]float64, score float64, err error) {
	metrics = map[string]float64{}
	for i := range e.sets {
		one, err := e.runSet(ctx, &e.sets[i])
		if err != nil {
			return nil, 0, err
		}
		maps.Copy(metrics, one)
		score += one[fmt.Sprintf("eval/%s/mean@%d", e.sets[i].name, e.k)] / float64(len(e.sets))
	}
	return metrics, score, nil
}

// scores are what the responses to one prompt got.
type scores struct {
	values          []float64 // rewards, in the order of the responses
	right           int       // of them with the full reward of 1
	tokens, clipped int
}

// runSet has all prompts of a set under way at once: the fleet queues them.
func (e *evaluation) runSet(ctx context.Context, set *evalSet) (map[string]float64, error) {
	got := make([]scores, len(set.prompts))
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError().WithMaxGoroutines(4 * max(1, e.fleet.Capacity()))
	for i := range set.prompts {
		tasks.Go(func(ctx context.Context) (err error) {
			got[i], err = e.prompt(ctx, &set.prompts[i], evalSeed(e.seed, i))
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	return e.metrics(set, got), nil
}

// scoreAttempts is how often a response's scoring is tried, as in training.
const scoreAttempts = 3

// prompt samples and scores the responses to one prompt.
func (e *evaluation) prompt(ctx context.Context, p *rollout.Prompt, seed uint64) (scores, error) {
	var got scores
	out, _, err := e.fleet.Generate(ctx, inference.Request{PromptIDs: p.IDs, N: e.k, Seed: seed, Sampling: e.sampling})
	if err != nil {
		return got, fmt.Errorf("prompt %s: %w", p.ID, err)
	}
	for j := range out {
		c := &out[j]
		var s reward.Score
		for range scoreAttempts {
			s, err = e.score.Score(ctx, reward.Input{Prompt: p, Text: e.text(c.IDs), Finish: c.Finish, Length: len(c.IDs)})
			if err == nil || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			return got, fmt.Errorf("prompt %s: score: %w", p.ID, err)
		}
		got.values = append(got.values, s.Value)
		if s.Value >= 1 {
			got.right++
		}
		got.tokens += len(c.IDs)
		if c.Finish == rollout.Length {
			got.clipped++
		}
	}
	return got, nil
}

// metrics are the means over a set's prompts, summed in their order: mean@k, and
// pass@ of k and of the powers of two below it.
func (e *evaluation) metrics(set *evalSet, got []scores) map[string]float64 {
	m := map[string]float64{}
	n := float64(len(got))
	add := func(name string, each func(s *scores) float64) {
		sum := 0.0
		for i := range got {
			sum += each(&got[i])
		}
		m["eval/"+set.name+"/"+name] = sum / n
	}
	k := float64(e.k)
	add(fmt.Sprintf("mean@%d", e.k), func(s *scores) float64 { return evaluate.MeanAtK(s.values, e.k) })
	for j := 1; j < e.k; j *= 2 {
		add(fmt.Sprintf("pass@%d", j), func(s *scores) float64 { return evaluate.PassAtK(e.k, s.right, j) })
	}
	add(fmt.Sprintf("pass@%d", e.k), func(s *scores) float64 { return evaluate.PassAtK(e.k, s.right, e.k) })
	add("response_length", func(s *scores) float64 { return float64(s.tokens) / k })
	add("clip_ratio", func(s *scores) float64 { return float64(s.clipped) / k })
	return m
}

// evalSeed keys the draws of a prompt, apart from those of training.
func evalSeed(seed uint64, i int) uint64 {
	z := seed ^ 0x6576616c75617465 // "evaluate"
	for _, v := range []uint64{0x9e3779b97f4a7c15, uint64(i)} {
		z += v
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
	}
	return z
}

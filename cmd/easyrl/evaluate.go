package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/sourcegraph/conc/pool"

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
// reward and eval/<name>/pass@k the share of prompts of which one response has
// the full reward of 1. score is the mean of the sets' means.
func (e *evaluation) run(ctx context.Context) (metrics map[string]float64, score float64, err error) {
	metrics = map[string]float64{}
	for i := range e.sets {
		one, err := e.runSet(ctx, &e.sets[i])
		if err != nil {
			return nil, 0, err
		}
		maps.Copy(metrics, one)
		score += one[e.name(&e.sets[i], "mean")] / float64(len(e.sets))
	}
	return metrics, score, nil
}

func (e *evaluation) name(set *evalSet, what string) string {
	return fmt.Sprintf("eval/%s/%s@%d", set.name, what, e.k)
}

// runSet has all prompts of a set under way at once: the fleet queues them.
func (e *evaluation) runSet(ctx context.Context, set *evalSet) (map[string]float64, error) {
	means, passed := make([]float64, len(set.prompts)), make([]float64, len(set.prompts))
	tokens, clipped := make([]int, len(set.prompts)), make([]int, len(set.prompts))
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError().WithMaxGoroutines(4 * max(1, e.fleet.Capacity()))
	for i := range set.prompts {
		tasks.Go(func(ctx context.Context) error {
			p := &set.prompts[i]
			out, _, err := e.fleet.Generate(ctx, inference.Request{PromptIDs: p.IDs, N: e.k, Seed: evalSeed(e.seed, i), Sampling: e.sampling})
			if err != nil {
				return fmt.Errorf("prompt %s: %w", p.ID, err)
			}
			for j := range out {
				c := &out[j]
				s, err := e.score.Score(ctx, reward.Input{Prompt: p, Text: e.text(c.IDs), Finish: c.Finish, Length: len(c.IDs)})
				if err != nil {
					return fmt.Errorf("prompt %s: score: %w", p.ID, err)
				}
				means[i] += s.Value / float64(e.k)
				if s.Value >= 1 {
					passed[i] = 1
				}
				tokens[i] += len(c.IDs)
				if c.Finish == rollout.Length {
					clipped[i]++
				}
			}
			return nil
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	m := map[string]float64{}
	n := float64(len(set.prompts))
	for i := range means { // in order, so that the sums have the same bits each time
		m[e.name(set, "mean")] += means[i] / n
		m[e.name(set, "pass")] += passed[i] / n
		m["eval/"+set.name+"/response_length"] += float64(tokens[i]) / n / float64(e.k)
		m["eval/"+set.name+"/clip_ratio"] += float64(clipped[i]) / n / float64(e.k)
	}
	return m, nil
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

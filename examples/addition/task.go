package main

import (
	"crypto/md5" //nolint:gosec // splits prompts, protects nothing
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Flaws of the demonstrations.
const (
	lazyShare   = 0.3 // share that guesses without thinking
	forgetCarry = 0.7 // share of carries forgotten in the others
)

// maxPrompts bounds the sizes of the sets. There are 810,000 sums, of which one in
// sixteen, about 50,000, is held out.
const maxPrompts = 40_000

// problem is the sum of two three-digit numbers.
type problem struct{ a, b int }

func draw(rng *rand.Rand) problem { return problem{100 + rng.IntN(900), 100 + rng.IntN(900)} }

func (p problem) prompt() string { return fmt.Sprintf("%d+%d=", p.a, p.b) }

func (p problem) answer() string { return strconv.Itoa(p.a + p.b) }

// heldOut reports whether p is reserved for the test set. It does not depend on
// the seed, so no training set ever contains a problem that is held out.
func (p problem) heldOut() bool {
	sum := md5.Sum([]byte(p.prompt())) //nolint:gosec // splits prompts, protects nothing
	return sum[0]%16 == 0
}

// task is a line of train.jsonl and test.jsonl.
type task struct {
	Prompt string `json:"prompt"`
	Answer string `json:"answer"`
}

// split draws distinct prompts: train of them for training, test for evaluation.
func split(seed uint64, train, test int) (trainSet, testSet []task, err error) {
	if train < 1 || test < 1 || train > maxPrompts || test > maxPrompts {
		return nil, nil, fmt.Errorf("%d training and %d held-out prompts, expected 1 to %d of each", train,
			test, maxPrompts)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	seen := map[problem]bool{}
	for len(trainSet) < train || len(testSet) < test {
		p := draw(rng)
		set, size := &trainSet, train
		if p.heldOut() {
			set, size = &testSet, test
		}
		if len(*set) < size && !seen[p] {
			seen[p] = true
			*set = append(*set, task{p.prompt(), p.answer()})
		}
	}
	return trainSet, testSet, nil
}

// demonstration is a line of demos.jsonl.
type demonstration struct {
	Prompt   string `json:"prompt"`
	Response string `json:"response"`
}

// demonstrations draws n demonstrations of prompts that are not held out.
func demonstrations(seed uint64, n int) []demonstration {
	rng := rand.New(rand.NewPCG(seed, 2))
	demos := make([]demonstration, 0, max(n, 0))
	for len(demos) < n {
		p := draw(rng)
		if p.heldOut() {
			continue
		}
		response := lazy(p)
		if rng.Float64() >= lazyShare {
			response = worked(p, func() bool { return rng.Float64() < forgetCarry })
		}
		demos = append(demos, demonstration{p.prompt(), response})
	}
	return demos
}

// lazy returns a guess without thinking: it adds only the hundreds.
func lazy(p problem) string { return strconv.Itoa((p.a/100 + p.b/100) * 100) }

// worked returns a response that adds column by column, least significant first.
// If forget returns true, it writes an incoming carry as 0. The answer follows
// from what is written, so it may be wrong.
func worked(p problem, forget func() bool) string {
	var steps []string
	a, b, carry, answer := p.a, p.b, 0, ""
	for column := range 3 {
		if carry == 1 && forget() {
			carry = 0
		}
		total := a%10 + b%10 + carry
		steps = append(steps, fmt.Sprintf("%d+%d+%d=%d", a%10, b%10, carry, total))
		digit := total % 10
		if column == 2 {
			digit = total // the last carry leads the answer
		}
		answer = strconv.Itoa(digit) + answer
		a, b, carry = a/10, b/10, total/10
	}
	return "<think>" + strings.Join(steps, ";") + "</think>" + answer
}

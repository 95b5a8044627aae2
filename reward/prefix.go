package reward

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/easyrl/easyrl/rollout"
)

// Prefix is the name of prefixKind.
const Prefix = "prefix"

func prefixKind() Kind {
	return Kind{
		Name:  Prefix,
		About: "gives partial credit for each correct leading character.",
		build: func(*Rule, int) (Func, error) { return prefix{}, nil },
		lacks: func(_ *Rule, answer json.RawMessage) bool { return absent(answer) },
	}
}

// prefix scores (p + s) / (n + 1). The answer has n characters, p is the number of
// leading characters that response and answer share, and s is 1 if the response is
// complete and equals the answer. A response that continues after the answer loses
// only s. The time is linear in the shorter of the two.
//
//	answer 7,2,6,1   response 7,2,6,1 and stop   8/8
//	                 7,2,6,1 cut at the limit    7/8
//	                 7,2,6,1,9 and stop          7/8
//	                 7,2 and stop                3/8
//	                 7,3,6,1 and stop            2/8
//	answer empty     nothing and stop            1/1
type prefix struct{}

func (prefix) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, absent); err != nil {
		return Score{}, err
	}
	got, want := in.Text, in.Prompt.AnswerText()
	n, shared := utf8.RuneCountInString(want), 0
	for got != "" && want != "" {
		g, size := utf8.DecodeRuneInString(got)
		w, wantSize := utf8.DecodeRuneInString(want)
		if g != w || size != wantSize { // invalid UTF-8 decodes to the same rune as U+FFFD, in another size
			break
		}
		got, want = got[size:], want[wantSize:]
		shared++
	}
	right := got == "" && want == "" && in.Finish == rollout.Stop
	if right {
		shared++
	}
	return Score{Value: float64(shared) / float64(n+1), Verdict: verdict(right)}, nil
}

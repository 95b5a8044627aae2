package words

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBefore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"It is more than ": "more than", "half of $": "half of", "1/3 of ": "times", "x >": ">", "~~": "not",
		"it isn't ": "isnt", "she does not have ": "not", "a square of ": "square of",
		"It is ": "", "nothing other than ": "", "no more and no less than ": "", "It adds up to ": "",
		"at up to ": "up to", "the handsome ": "", "not wrong; it is ": "",
	} {
		require.Equal(t, want, Before(text), text)
	}
}

// Each predicate has words of its own, and shares those that negate.
func TestDoubts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		word                            string
		negated, denied, alters, doubts bool
	}{
		{"not", true, true, true, false},
		{"wasn’t", true, true, true, false},
		{"wrong", true, true, true, true},
		{"perhaps", true, true, true, true},
		{"or", true, true, false, true},
		{"and", false, true, false, false},
		{"twice", false, false, true, false},
		{"roughly", false, false, false, true},
		{"apples", false, false, false, false},
	} {
		require.Equal(t, row.negated, Negated(row.word, nil), row.word)
		require.Equal(t, row.denied, Denied(row.word, nil), row.word)
		require.Equal(t, row.alters, Alters(row.word), row.word)
		require.Equal(t, row.doubts, Doubts(row.word), row.word)
		require.False(t, Negated(row.word, []string{fold(row.word)}), row.word)
		require.False(t, Denied(row.word, []string{fold(row.word)}), row.word)
	}
}

func TestNegates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"she does not have": true, "no, it is": false, "the probability of not winning is": true, "it cannot be": true,
		"it is not that, but": false, "it is": false,
	} {
		require.Equal(t, want, denied(text), text)
	}
}

func TestHedges(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]bool{"not sure": true, "if rounded": true, "about that": true,
		"never attained": false, "all counted": false} {
		require.Equal(t, want, Hedges(comment), comment)
	}
}

func TestSpelled(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"twenty five apples": "25 apples", "Twenty-five": "25 ", "two hundred and six": "206 ",
		"one hundred thousand": "100000 ", "three thousand": "3000 ", "two thirds": "2/3 ",
		"two and a half hours": "2 1/2 hours", "half a mile": "1/2 mile", "apples": "", "": "",
	} {
		digits, ok := Spelled(text)
		require.Equal(t, want, digits, text)
		require.Equal(t, want != "", ok, text)
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"The day is Friday.": {"day", "friday"}, "October 30th": {"october", "30"}, "It cannot be": {"not"},
		"-3 degrees": {"-3", "degrees"},
	} {
		require.Equal(t, want, Of(text), text)
	}
}

func TestUncommented(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"even, since 2 divides it": "even", "Bob, Alice's opponent": "Bob", "even (by 2)": "even",
		"red, green": "red, green", "yes; it is": "yes",
	} {
		require.Equal(t, want, Uncommented(text), text)
	}
}

package question

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward/grade/measure"
)

func TestAskedUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"How many minutes does it take?": "minute", "It takes 3 hours. How long is that in seconds?": "second",
		"What is the number of weeks?":     "week",
		"How many apples are in 5 pounds?": "", "How many minutes and how many apples are there?": "",
		"How long does it take?": "", "": "",
	} {
		require.Equal(t, measure.Of(want), New(text).AskedUnit(), text)
	}
}

// What a question asks for, by its words.
func TestAsks(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*Question) bool{
		"transforms": (*Question).Transforms, "reduces": (*Question).Reduces, "rate": (*Question).asksRate,
		"share": (*Question).AsksShare, "slope": (*Question).AsksSlope,
	}
	for text, want := range map[string][]string{
		"Simplify $2x+x$.":                          {"transforms", "reduces"},
		"Expand $(x+1)^2$.":                         {"transforms"},
		"What is its average speed?":                {"rate"},
		"What is the probability of heads?":         {"share"},
		"What percent is left?":                     {"share"},
		"What is 20% of 50?":                        nil,
		"What is the side of a square with area 4?": nil,
		"Find the slope at 1.":                      {"slope"},
		"How many apples are left?":                 nil,
		"":                                          nil,
	} {
		for name, asks := range kinds {
			got := false
			for _, kind := range want {
				got = got || kind == name
			}
			require.Equal(t, got, asks(New(text)), "%q asks for %s", text, name)
		}
	}
}

func TestAsksPer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text, per string
		asks      bool
	}{
		{"How many miles per hour?", "hour", true},
		{"How fast in km/h?", "hour", true},
		{"How many miles per hour?", "second", false},
		{"How fast is it?", "second", true},
		{"How many apples per person?", "hour", true},
	} {
		require.Equal(t, row.asks, New(row.text).asksPer(row.per), row)
	}
}

func TestChoices(t *testing.T) {
	t.Parallel()
	q := New("Is the coin in the red, the green or the blue jar? (A) red (B) green\n(C) blue")
	for word, offers := range map[string]bool{"green": true, "blue": true, "coin": false, "jar": false} {
		require.Equal(t, offers, q.Offers(word), word)
	}
	for letter, want := range map[byte]string{'A': "red", 'B': "green", 'C': "blue", 'D': ""} {
		require.Equal(t, want, q.Option(letter), string(letter))
	}
}

func TestFormulas(t *testing.T) {
	t.Parallel()
	q := New("Let $x+y=7$ and $xy=3$. Find $x^2+y^2$ for 20 of them.")
	f := q.Formulas()
	require.Len(t, f.Symbols, 2)
	require.Len(t, f.Alone, 1)
	require.True(t, f.Alone[q.Target()])
	require.True(t, f.Given["20"])
	require.True(t, f.Names("x"))
	require.False(t, f.Names("z"))
	require.Same(t, f, q.Formulas())
	require.Empty(t, (&Question{}).Formulas().Keys)
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for text, found := range map[string]bool{"What is $f(2)$?": true, `Find \(x+y\).`: true, "Find $x = 2$.": false,
		"What is it?": false, "": false} {
		require.Equal(t, found, New(text).Target() != "", text)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	q := New("He buys 3 Apples for $2 each. Then he sells them by the hour. How many apples are left?")
	require.True(t, q.Has("apple"))
	require.True(t, q.Has("apples"))
	require.False(t, q.Has("pear"))
	require.True(t, q.LastHas("left"))
	require.False(t, q.LastHas("hour"))
	require.Equal(t, "how many apples are left?", q.From("how "))
	require.Empty(t, q.From("why "))
	require.Equal(t, map[string]measure.Unit{"hour": measure.Of("hour")}, q.unitsByWord())
	require.Equal(t, measure.Of("hour"), q.UnitLike(measure.Of("minute")))
	require.False(t, q.UnitLike(measure.Of("feet")).Known())
	require.Equal(t, measure.Of("m"), New("It is 24 m long, and m is 5 grams.").UnitLike(measure.Of("cm")))
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for text, kinds := range map[string][]string{
		"What is the area of the square?":                         {"area"},
		"How far does it go? It moves at 60 km/h. How far is it?": {"length"},
		"How fast is it?":                     {"rate", "speed"},
		"How many cubic metres does it hold?": {"volume"},
		"How many apples are left?":           {"count"},
		"How many minutes remain?":            {"time"},
		"What is left?":                       nil,
	} {
		require.Equal(t, kinds, New(text).kinds(), text)
	}
}

func TestAsksBase(t *testing.T) {
	t.Parallel()
	for text, base := range map[string]string{"Write 9 in base 8.": "8", "Convert it to base eight": "8",
		"Write 9 in binary.": "2", "What is 255 in hexadecimal?": "16"} {
		require.True(t, New(text).AsksBase(base), text)
		require.False(t, New(text).AsksBase("10"), text)
	}
}

func TestOpposes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		question, sentence string
		opposes            bool
	}{
		{"How many minutes does the clock lose?", "It gains 24 minutes.", true},
		{"How many minutes does the clock lose?", "It loses 24 minutes.", false},
		{"What is the profit?", "The loss is 5.", true},
		{"What is the profit or loss?", "The loss is 5.", false},
		{"What is the coefficient of $x^2$?", "The coefficient of $x^3$ is 5.", true},
		{"What is the coefficient of $x^2$?", "The coefficient of $x^2$ is 5.", false},
		{"", "It gains 24 minutes.", false},
	} {
		require.Equal(t, row.opposes, New(row.question).Opposes(row.sentence), row)
	}
}

func TestOtherQuantity(t *testing.T) {
	t.Parallel()
	q := New("A circle has radius 5. What is its area?")
	for text, other := range map[string]bool{"The perimeter is ": true, "The area is ": false,
		"The area of the circle equals $": false, "It is ": false, "The diameter, ": false} {
		require.Equal(t, other, q.OtherQuantity(text), text)
	}
}

package sentence

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"One. Two! Three?\nFour":            {"One.", "Two!", "Three?", "Four"},
		"It costs $3.50. Then $x. y$ is 4.": {"It costs $3.50.", "Then $x. y$ is 4."},
		"Dr. Lee has 5 ft. 3 in. of it.":    {"Dr. Lee has 5 ft. 3 in.", "of it."},
		"3. Add them.":                      {"3. Add them."},
		"At 5 p.m. he left.":                {"At 5 p.m. he left."},
		" \n":                               nil,
	} {
		var got []string
		for _, s := range Split(text) {
			require.Equal(t, s.Text, text[s.Lo:s.Lo+len(s.Text)])
			got = append(got, strings.TrimSpace(s.Text))
		}
		require.Equal(t, want, got, text)
	}
	text := "The answer is 3. Add them."
	require.Len(t, Continue(text, strings.Index(text, "3"), len(text)), 2) // no label, unlike the 3 of a list
}

func TestValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"He has 1,250 apples and $x^2$.":            {"1,250", "x^2"},
		"2 + 3 = 5":                                 {"5"},
		"It takes 2 hours and 40 minutes.":          {"2 hours and 40 minutes"},
		"The pair is (3, π/2).":                     {"(3, π/2)"},
		"a 5-year-old paid $2 million":              {"5", "$2 million"},
		`\[\begin{aligned}a&=1\\&=2\end{aligned}\]`: {" =2"},
		"3n = 12":      {"3n = 12"},
		"no value yet": nil,
	} {
		var got []string
		for _, s := range Split(text) {
			for _, v := range s.Values() {
				got = append(got, v.Text)
			}
		}
		require.Equal(t, want, got, text)
	}
	asides := map[string]bool{}
	for _, v := range Split("After 3 days he sold 5 of the 8 boxes (2 red).")[0].Values() {
		asides[v.Text] = v.Aside
	}
	require.Equal(t, map[string]bool{"3 days": true, "5": false, "8": true, "2": true}, asides)
}

// Main is the value that a sentence is about, with what changes its meaning.
func TestMain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"After 3 days there are 5 apples.":                 "5",
		"He has 18, twice 9.":                              "18",
		"It is more than 20.":                              "more than 20",
		"Since 9 > 0, the roots are 1 and 4.":              "1 , 4",
		"He sold 26 of the 40, so 14 are left.":            "14",
		"She pays $60, which is $40 less than the $100.":   "$60",
		"The value is 4, not 5.":                           "4",
		"It could be 4, or it could be 5.":                 "4 , 5",
		"The total is **12**, from 3 boxes of 4.":          "12",
		"There are 3 * 4 = 12 eggs in 3 boxes.":            "12",
		"He needs 5 eggs to make 2 cakes.":                 "5",
		"The bill is $11: $8 for lunch plus $3 for a tip.": "$11",
	} {
		require.Equal(t, want, Split(text)[0].Main()[0], text)
	}
	require.Nil(t, Split("There is none.")[0].Main())
}

func TestReadings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Since 9 > 0, there are two solutions.": "2 solutions.", "So seven in 4 weeks.": "7 in", "The coin is in jar B.": "B", "I choose option C, not A.": "C", "It is **blue**.": "blue",
		"He had 24, so it is half of that.": "so it is half of that.",
	} {
		require.Contains(t, Split(text)[0].Readings(), want, text)
	}
}

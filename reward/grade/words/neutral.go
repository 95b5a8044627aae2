package words

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// neutral holds articles, pronouns, auxiliary verbs, words that conclude and general nouns.
const neutral expr.Names = `
	agrees all simply clearly certainly obviously definitely common difference dot indeed overall precisely product
	quotient single surely also altogether amount and answer are because been being both can cent correct cost costs
	count counted cubic degrees describes did does down earned earns equal equals every exact exactly final finally
	for from gain gave gcd get gets give given gives got had happens has have having hence her his integer into its
	just lcm left letter made make makes measure meters must namely necessarily need needed needs nothing now number
	old one only our people perfect pieces positive probability profit rad remain remaining remains result root
	roots round rounded rounds she should simplified simplifies since solution some spend spends spent square sum
	take takes that the their them then there therefore these they this those thus together took total totals unit
	units up use used uses value was were what when where which who whole will with would written years you your`

// closing holds words of sentences that only say that the answer follows, besides neutral ones.
const closing expr.Names = `
	answers option choice question problem puzzle exercise task think believe confident fairly find found arrive
	arrived arriving obtain obtained conclude conclusion summary short required desired right best numerical numeric
	simplest lowest form fraction decimal percent terms let write state put express expressed rounding nearest
	places verified boxed below follows following here yields see know means shows asked but however please note
	checking checked ready complete clear provide box full actual sought unique`

// Neutral reports whether a word in lower case says nothing about the value beside it.
func Neutral(word string) bool { return neutral.Has(word) }

// Closes reports whether a word in lower case may be in a sentence that only says that the answer
// follows: "my final answer is".
func Closes(word string) bool { return neutral.Has(word) || closing.Has(word) }

// Counts reports whether a word in lower case looks like the plural of what a number counts: "eggs".
func Counts(word string) bool {
	const others expr.Names = `
		pairs dozens times halves thirds quarters others thousands hundreds millions billions tenths hundredths starts
		begins falls drops besides`
	return len(word) >= 5 && strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") && !others.Has(word)
}

package text

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
)

// The slow form agrees with the library wherever the library is exact.
func TestNormalizeLongMatchesLibrary(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	marks := []string{"a", "e", "\u0301", "\u0323", "\u0327", "\u0345", "\u1161", "\u1100", "\u11a8", "가", "ệ",
		"\u0915", "\u093c", "\u09c7", "\u09be", "ﬁ", "\u1e9b", "\u0f71", "\u0f73"}
	all := make(map[norm.Form]*normalizer)
	for _, form := range forms() {
		all[form] = newNormalizer(form)
	}
	for range 2000 {
		var b strings.Builder
		for range r.IntN(10) {
			b.WriteString(marks[r.IntN(len(marks))])
		}
		for _, form := range forms() {
			require.Equal(t, form.String(b.String()), all[form].long(b.String()), "%+q form %d", b.String(), form)
		}
	}
}

// Composites are those that the library makes of two ordered characters.
func TestComposites(t *testing.T) {
	t.Parallel()
	pairs := composites()
	require.Greater(t, len(pairs), 900)
	firsts, seconds := map[rune]bool{'가': true, '각': true, 0x1100: true, 0x1112: true, 0x1113: true},
		map[rune]bool{0x1161: true, 0x1175: true, 0x1176: true, 0x11a7: true, 0x11a8: true, 0x11c2: true, 0x11c3: true}
	for p := range pairs {
		firsts[p.first], seconds[p.second] = true, true
	}
	for a := range firsts {
		for b := range seconds {
			if class := norm.NFD.PropertiesString(string(b)).CCC(); class > 0 &&
				norm.NFD.PropertiesString(string(a)).TrailCCC() > class {
				continue // b goes before a's mark
			}
			text := norm.NFC.String(string([]rune{a, b}))
			want, size := utf8.DecodeRuneInString(text)
			got, ok := join(pairs, a, b)
			require.Equal(t, size == len(text), ok, "%+q %+q", a, b)
			if ok {
				require.Equal(t, want, got, "%+q %+q", a, b)
			}
		}
	}
}

func forms() []norm.Form { return []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} }

func FuzzNormalize(f *testing.F) {
	f.Add("e\u0301\u1100\u1161\xff", 40)
	var all Steps
	for _, form := range forms() {
		all = append(all, Form(form))
	}
	f.Fuzz(func(t *testing.T, text string, marks int) {
		text += strings.Repeat("\u0301", min(max(marks, 0), 100))
		for _, form := range all {
			b := budget.New(len(text))
			once := form(b, text)
			require.Equal(t, once, form(b, once))
			require.Equal(t, utf8.ValidString(text), utf8.ValidString(once))
			require.Equal(t, strings.Contains(text, "\u034f"), strings.Contains(once, "\u034f"))
		}
	})
}

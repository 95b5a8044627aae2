package measure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnitOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Unit{
		"hours": {"time", 3600, 1}, "Hour": {"time", 3600, 1}, "min": {"time", 60, 1}, "cents": {"money", 1, 1}, "kg": {"mass", 1000, 1}, "inches": {"imperial length", 1, 1},
		"feet": {"imperial length", 12, 1}, "lbs": {"imperial mass", 16, 1}, "gallons": {"imperial volume", 8, 1}, "apples": {}, "": {},
	} {
		require.Equal(t, want, UnitOf(name), name)
		require.Equal(t, want != Unit{}, IsUnit(name), name)
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"2 hours and 40 minutes": "9600", "5 feet 3 inches tall": "63", "3 hours": "10800", "half past 3 and 5 minutes": "", "2 hours + 1": ""} {
		m, ok := Whole(text)
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, m.Total.RatString(), text)
		}
	}
}

func TestSameTime(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b        string
		same, known bool
	}{
		{"8:34 PM", "20:34", true, true},
		{"8:34 p.m.", `8\!:\!34 \text{ pm}`, true, true},
		{"12:05 am", "0:05", true, true},
		{"8:34 PM", "8:34 AM", false, true},
		{"8:34", "8:34 PM", false, false}, // which half of the day?
		{"13:00 pm", "13:00", false, false},
		{"3:5", "15:00", false, false},
	} {
		same, known := SameTime(row.a, row.b)
		require.Equal(t, row.known, known, row)
		require.Equal(t, row.same, same, row)
	}
}

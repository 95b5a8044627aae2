package measure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Unit{
		"hours": {"s^1", "3600"}, "Hour": {"s^1", "3600"}, "min": {"s^1", "60"}, "cents": {"cent^1", "1"},
		"kg": {"g^1", "1000"}, "KG": {"g^1", "1000"}, "MW": {"g^1 m^2 s^-3", "1000000000"}, "mW": {"g^1 m^2 s^-3", "1"},
		"inches": {"m^1", "127/5000"}, "km/h": {"m^1 s^-1", "5/18"}, "kilometers per hour": {"m^1 s^-1", "5/18"},
		"square cm": {"m^2", "1/10000"}, "m s^{-2}": {"m^1 s^-2", "1"}, "apples": {}, "": {}, "square": {}, "m/": {},
	} {
		got := Of(name)
		require.Equal(t, want.Known(), IsUnit(name), name)
		require.Equal(t, want.Dimension, got.Dimension, name)
		if want.Known() {
			require.Zero(t, want.Size().Cmp(got.Size()), name)
		}
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"2 hours and 40 minutes": "9600", "5 feet 3 inches tall": "8001/5000",
		"3 hours": "10800", "half past 3 and 5 minutes": "", "2 hours + 1": ""} {
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

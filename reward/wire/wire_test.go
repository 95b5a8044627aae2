package wire

import (
	"math"
	"testing"
)

func FuzzReadLine(f *testing.F) {
	for _, seed := range []string{`{"id":1,"score":0.5}`, `{"id":1,"error":"x"}`, `{"id":2}`, `[]`, `null`,
		`{"id":1,"score":1e999}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := ReadLine(line, 1)
		if err != nil {
			return
		}
		if a.Error == "" && (a.Score == nil || math.IsNaN(*a.Score) || math.IsInf(*a.Score, 0)) {
			t.Fatalf("%q gave no finite score", line)
		}
	})
}

func FuzzReadList(f *testing.F) {
	for _, seed := range []string{`{"scores":[{"id":1,"score":0.5}]}`, `{"scores":null}`, `[]`,
		`{"scores":[{"id":1,"score":1e999}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		answers, err := ReadList(text, 1)
		if err != nil || answers[0].Check(1) != nil {
			return
		}
		if a := answers[0]; a.Error == "" && (a.Score == nil || math.IsNaN(*a.Score) || math.IsInf(*a.Score, 0)) {
			t.Fatalf("%q gave no finite score", text)
		}
	})
}

package grade

import "testing"

// BenchmarkTask grades the responses of the table of attacks, questions included.
func BenchmarkTask(b *testing.B) {
	rows := attacks(b, "testdata/attacks.jsonl")
	for i := 0; b.Loop(); i++ {
		row := rows[i%len(rows)]
		NewTask(row.Question, row.Gold).Fault(row.Twin)
	}
}

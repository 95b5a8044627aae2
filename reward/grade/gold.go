package grade

// Bare returns the answer that a data set's field states: the answer of the solution in
// it, or the field itself.
func Bare(want string) string { return expected(want) }

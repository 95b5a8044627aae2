//go:build !unix

package trainer

// Lock does nothing: these systems have no such locks.
func Lock(string, bool) (unlock func(), held bool, err error) { return func() {}, true, nil }

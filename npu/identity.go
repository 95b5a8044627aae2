package npu

import "fmt"

// Identity identifies an arithmetic: exact devices whose identities are equal compute the same bits. It is part of
// what a run, a rank, an easyrl server and a published version are. The zero Identity stands for an arithmetic other
// than this package's, such as that of PyTorch ranks.
type Identity struct {
	Name    string // of the numerics; may be one that this version of easyrl lacks
	Version int    // NumericsVersion
}

// Identity returns the identity of the numerics in this version of easyrl.
func (n Numerics) Identity() Identity { return Identity{n.String(), NumericsVersion} }

// String describes the identity, such as "bf16 (version 5)".
func (i Identity) String() string {
	if i == (Identity{}) {
		return "none"
	}
	return fmt.Sprintf("%s (version %d)", i.Name, i.Version)
}

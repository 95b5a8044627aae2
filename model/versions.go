package model

// MinVersions is the least number of published versions to keep: the one that instances may still hold, and the
// one that they get in its place.
const MinVersions = 2

// Versions holds the last published versions of some weights, each in memory of its own that a later version
// overwrites. It is not safe for concurrent use.
type Versions struct {
	allocate func() (*Weights, error)
	slots    []slot
	next     int // index of the slot for the next version
}

// slot is the memory of one version.
type slot struct {
	memory *Weights  // nil until a version needs it
	held   *Snapshot // version that the memory holds; nil for none
}

// NewVersions returns room for n versions, or MinVersions if n is less. allocate makes the memory of one,
// when it is first needed. If first is not nil, it is the memory of the first version, and NewVersions takes
// ownership of it.
func NewVersions(n int, first *Weights, allocate func() (*Weights, error)) *Versions {
	v := &Versions{allocate: allocate, slots: make([]slot, max(n, MinVersions))}
	v.slots[0].memory = first
	return v
}

// Slot returns the number of the slot that the next version gets, from 0. Once all slots are used, it is that of
// the oldest version.
func (v *Versions) Slot() int { return v.next }

// Next returns the memory for the next version. The caller overwrites it and then calls Hold. If the caller fails
// before that, Next returns the same memory again, and no other version is lost.
func (v *Versions) Next() (*Weights, error) {
	s := &v.slots[v.next]
	s.held = nil
	if s.memory == nil {
		w, err := v.allocate()
		if err != nil {
			return nil, err
		}
		s.memory = w
	}
	return s.memory, nil
}

// Hold makes s the version in the next slot. s is nil if the caller holds the version elsewhere.
func (v *Versions) Hold(s *Snapshot) {
	v.slots[v.next].held = s
	v.next = (v.next + 1) % len(v.slots)
}

// Find returns a version, or nil if it is not held.
func (v *Versions) Find(version int64) *Snapshot {
	for i := range v.slots {
		if s := v.slots[i].held; s != nil && s.Version() == version {
			return s
		}
	}
	return nil
}

// Free frees the memory of all versions.
func (v *Versions) Free() {
	for i := range v.slots {
		if w := v.slots[i].memory; w != nil {
			w.Free()
		}
		v.slots[i] = slot{}
	}
}

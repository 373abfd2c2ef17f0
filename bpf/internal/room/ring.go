//go:build linux

package room

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// ShareRing has owners share a ring. Who shares maps, too, calls Share instead.
func ShareRing(spec *ebpf.CollectionSpec, salt Salt) error {
	return spec.Variables[variableSalt].Set(uint64(salt))
}

// Crowded is how many records were refused to owners who had more than their share of a
// ring: bpf/include/ring.h.
type Crowded struct {
	Records uint64
	User    uint32 // of the last on the processor that refused most
	_       uint32
}

// ReadCrowded reads its counter.
func ReadCrowded(m *ebpf.Map) (Crowded, error) {
	var processors []Crowded
	if err := m.Lookup(uint32(0), &processors); err != nil {
		return Crowded{}, fmt.Errorf("read what found no room in the ring: %w", err)
	}
	most := slices.MaxFunc(processors, func(a, b Crowded) int { return cmp.Compare(a.Records, b.Records) })
	all := Crowded{User: most.User}
	for _, one := range processors {
		all.Records += one.Records
	}
	return all, nil
}

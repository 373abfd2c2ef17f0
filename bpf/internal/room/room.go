//go:build linux

// Package room sets up the shares that owners have in the tables of a probe, and reads what
// they hold: the side in user space of bpf/include/room.h.
package room

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf"
)

// Names in room.h.
const (
	variableCapacity = "capacity"
	variableSalt     = "salt"
	mapHeld          = "held"
)

// slots of tenants, and of users, in each table.
const slots = 1 << 12

const perTable = 1 + 2*slots

// Salt of the hash that finds slots: nobody may work out whose slot he shares. Programs that
// share their tables have the same.
type Salt uint64

// NewSalt returns one that nobody knows.
func NewSalt() Salt { return Salt(rand.Uint64()) }

// Share has owners share the room of these maps, in the order of their tables. Sizes of maps
// are set before it is called.
func Share(spec *ebpf.CollectionSpec, salt Salt, maps ...string) error {
	capacity := make([]uint32, len(maps))
	for i, name := range maps {
		if spec.Maps[name] == nil {
			return fmt.Errorf("share room: no map %s", name)
		}
		capacity[i] = spec.Maps[name].MaxEntries
	}
	if tables := spec.Maps[mapHeld].MaxEntries / perTable; int(tables) != len(maps) {
		return fmt.Errorf("share room: %d maps of %d tables", len(maps), tables)
	}
	return errors.Join(
		spec.Variables[variableCapacity].Set(capacity),
		spec.Variables[variableSalt].Set(uint64(salt)),
	)
}

// InAll is how many entries a table counts.
func InAll(held *ebpf.Map, table uint32) (int32, error) {
	var n int32
	if err := held.Lookup(table*perTable, &n); err != nil {
		return 0, fmt.Errorf("read what owners hold: %w", err)
	}
	return n, nil
}

// Forget has a program take out an entry of its map: a key, and what else says that it is
// still the entry that is meant. It reports whether there was one.
func Forget(program *ebpf.Program, about ...uint64) (bool, error) {
	done, err := program.Run(&ebpf.RunOptions{Context: about})
	return done != 0, err
}

// Owner are the slots of one who holds an entry.
type Owner struct{ Tenant, User uint16 }

// Counts are what a held map must say of tables with such entries. For tests.
func Counts(tables ...[]Owner) []int32 {
	counts := make([]int32, len(tables)*perTable)
	for i, owners := range tables {
		at := counts[i*perTable:][:perTable]
		for _, o := range owners {
			at[0]++
			at[1+int(o.Tenant)]++
			at[1+slots+int(o.User)]++
		}
	}
	return counts
}

// Held is all that a held map says. For tests.
func Held(held *ebpf.Map) ([]int32, error) {
	counts := make([]int32, held.MaxEntries())
	for i := range counts {
		if err := held.Lookup(uint32(i), &counts[i]); err != nil {
			return nil, fmt.Errorf("read what owners hold: %w", err)
		}
	}
	return counts, nil
}

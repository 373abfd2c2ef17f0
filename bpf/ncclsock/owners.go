//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
)

// chosen appends the processes to look at, in ascending order and each once, and
// says how many were too many. A socket that two of them hold is then met at the
// lowest first.
func chosen(into, owners []uint32, most uint32) (_ []uint32, over int) {
	into = append(into, owners...)
	slices.Sort(into)
	into = slices.Compact(into)
	if len(into) > 0 && into[0] == 0 { // no process has the id 0
		into = into[1:]
	}
	if len(into) > int(most) {
		over = len(into) - int(most)
		into = into[:most]
	}
	return into, over
}

// setOwners changes what differs from the snapshot before.
func (it *iterator) setOwners(owners []uint32) error {
	wanted := make(map[uint32]struct{}, len(owners))
	for _, pid := range owners {
		wanted[pid] = struct{}{}
	}
	for pid := range it.owners {
		if _, ok := wanted[pid]; ok {
			continue
		}
		if err := it.objects.Owners.Delete(pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(it.owners, pid)
	}
	for pid := range wanted {
		if _, ok := it.owners[pid]; ok {
			continue
		}
		if err := it.objects.Owners.Put(pid, bpfPart{}); err != nil {
			return err
		}
		it.owners[pid] = struct{}{}
	}
	return nil
}

//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// fire attaches to a function of this program that begins as the library's do, calls it
// as ncclAllReduce is called and looks whether the call was counted, for the rank that is
// in the communicator. It does not wait until it is detached, for which the kernel takes
// its time.
func (h *hooks) fire() (err error) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("make a communicator for the self-test: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(page)) }()
	function, err := uprobe.OwnFunction(standin.Entry())
	if err != nil {
		return fmt.Errorf("find the self-test in this program: %w", err)
	}
	const rankAt = 8
	slot := uint32(ownSlot)
	if !h.cookies {
		slot = 0
	}
	own := bpfLibrary{RankOffset: rankAt, HasHash: 1, Enabled: 1}
	if err := h.collection.Maps[bpfMapLibraries].Put(slot, own); err != nil {
		return fmt.Errorf("tell BPF of the self-test: %w", err)
	}
	links, err := uprobe.Attach(uprobe.Own, []uprobe.Hook{{
		Name: "the self-test", Offset: function.Offset, Program: h.collection.Programs[bpfProgAllReduce], Cookie: uint64(slot),
	}})
	if err != nil {
		return err
	}
	closed := make(chan error, 1)
	h.selfTest = closed
	defer func() { go func() { closed <- links.Close() }() }()
	layout := &(*bpfCommunicator)(unsafe.Pointer(unsafe.SliceData(page))).Layout
	layout.Hash, layout.Rank, layout.Nranks = rand.Uint64(), 1, 2
	var arguments standin.Arguments
	arguments.Registers[5] = uintptr(unsafe.Pointer(layout)) // the sixth is the communicator
	standin.Call(standin.Entry(), &arguments)
	if err := h.counted(layout.Hash); err != nil {
		return err
	}
	return h.collection.Maps[bpfMapLibraries].Put(slot, bpfLibrary{})
}

// counted looks for the communicator with a hash, and forgets it. This process may have
// another number in the kernel's own pid namespace.
func (h *hooks) counted(hash uint64) error {
	var key bpfCommunicatorKey
	var value bpfCommunicator
	for entries := h.collection.Maps[bpfMapCommunicators].Iterate(); entries.Next(&key, &value); {
		if value.Layout.Hash == hash && bpfIdentity(value.Identity) == bpfIdentityIDENTITY_READ && value.Collectives == 1 {
			return h.forgetCommunicator(&key)
		}
	}
	return ladder.ErrSilent
}

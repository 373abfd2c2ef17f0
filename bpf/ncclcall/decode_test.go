//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// record is a record as the kernel side writes it, changed by change.
func record(change func(*bpfEvent)) []byte {
	r := &bpfEvent{TimeNs: 5, Pid: 42, Thread: 43, Kind: uint32(InitRank), Rank: 1, Nranks: 8, Ids: 1, Owner: bpfOwner{TenantSlot: 6, UserSlot: 7}}
	copy(r.Id[:], uniqueID(1))
	change(r)
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func TestDecodeReadsARecord(t *testing.T) {
	var e Event
	require.NoError(t, decode(record(func(*bpfEvent) {}), int64(time.Hour), &e))
	hashes := idHashes(uniqueID(1))
	require.Equal(t, Event{
		Time: time.Unix(3600, 5), Kind: InitRank, PID: 42, Thread: 43, Rank: 1, Size: 8, Hash: hashes[0], born: hashes,
		bootNS: 5, tenant: 6, user: 7,
		Root: netip.MustParseAddrPort("10.0.0.1:48579"),
	}, e)
	require.NoError(t, decode(record(func(r *bpfEvent) {
		copy(r.Id[8:], []byte{10, 0, 0, 80, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	}), 0, &e))
	require.Equal(t, netip.MustParseAddrPort("[fd00::1]:80"), e.Root)
	require.NoError(t, decode(record(func(r *bpfEvent) { r.Ids, r.Nranks, r.Rank = 0, -5, -5 }), 0, &e))
	require.False(t, e.Root.IsValid())
	require.Zero(t, e.Size)
	require.EqualValues(t, -1, e.Rank)
}

func TestDecodeRefusesWhatCannotBe(t *testing.T) {
	var e Event
	for name, change := range map[string]func(*bpfEvent){
		"no process": func(r *bpfEvent) { r.Pid = 0 },
		"no thread":  func(r *bpfEvent) { r.Thread = 0 },
		"no kind":    func(r *bpfEvent) { r.Kind = 0 },
		"odd kind":   func(r *bpfEvent) { r.Kind = uint32(Kinds) },
	} {
		require.Error(t, decode(record(change), 0, &e), name)
	}
	whole := record(func(*bpfEvent) {})
	require.ErrorContains(t, decode(whole[:len(whole)-1], 0, &e), "bytes, want")
	require.Error(t, decode(nil, 0, &e))
}

func FuzzDecode(f *testing.F) {
	f.Add(record(func(*bpfEvent) {}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e Event
		if decode(raw, 0, &e) != nil {
			return
		}
		require.NotZero(t, e.PID)
		require.NotEqual(t, "unknown", e.Kind.String())
		require.GreaterOrEqual(t, e.Rank, int32(-1))
	})
}

// An entry of the map is read while BPF writes it, and its layout is the process's word.
func FuzzCommunicator(f *testing.F) {
	value := bpfCommunicator{Identity: uint32(bpfIdentityIDENTITY_READ), Collectives: 40, LastOperation: 1}
	value.Layout.Rank, value.Layout.Nranks, value.Layout.BusId = 1, 2, 0x1b000
	f.Add(unsafe.Slice((*byte)(unsafe.Pointer(&value)), unsafe.Sizeof(value)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v bpfCommunicator
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), raw)
		c := communicator(&bpfCommunicatorKey{Pid: 1}, &v, 0)
		require.Less(t, c.Last.Operation, Operations)
		require.LessOrEqual(t, len(c.Recent), len(v.Recent))
		require.LessOrEqual(t, len(c.Samples), len(v.Samples))
		for i := range c.Samples {
			require.Less(t, c.Samples[i].Number, c.Collectives)
		}
		if c.Identity == Known {
			require.Less(t, c.Rank, c.Size)
			require.GreaterOrEqual(t, c.Rank, int32(0))
		}
		for i := range c.Recent {
			require.Less(t, c.Recent[i].Operation, Operations)
			require.Less(t, c.Recent[i].Number, c.Collectives)
		}
	})
}

func TestGPUIsBelievedOnlyBehindComputeCapabilities(t *testing.T) {
	bus := func(change func(*bpfCommunicator)) string {
		v := bpfCommunicator{Identity: uint32(bpfIdentityIDENTITY_READ)}
		l := &v.Layout
		l.Rank, l.Nranks, l.Capability, l.MinCapability, l.MaxCapability, l.BusId = 1, 2, 90, 80, 90, 0x1_1b_00_0
		change(&v)
		return communicator(&bpfCommunicatorKey{Pid: 1}, &v, 0).GPU
	}
	require.Equal(t, "0001:1b:00.0", bus(func(*bpfCommunicator) {}))
	require.Equal(t, "ffff:ff:1f.7", bus(func(v *bpfCommunicator) { v.Layout.BusId = 0xffff_ff_1f_7 }))
	for name, change := range map[string]func(*bpfCommunicator){
		"NCCL 2.18.1": func(v *bpfCommunicator) { v.Layout.MaxCapability = 0x1b000 },
		"none":        func(v *bpfCommunicator) { v.Layout.BusId = -1 },
		"too long":    func(v *bpfCommunicator) { v.Layout.BusId = 1 << 40 },
		"function 9":  func(v *bpfCommunicator) { v.Layout.BusId = 0x1b009 },
		"device 0x20": func(v *bpfCommunicator) { v.Layout.BusId = 0x1b200 },
		"no hash":     func(v *bpfCommunicator) { v.Identity = uint32(bpfIdentityIDENTITY_READ_WITHOUT_HASH) },
	} {
		require.Empty(t, bus(change), name)
	}
}

func TestNumbersBeyondTheNamesAreNamedAllTheSame(t *testing.T) {
	require.Equal(t, "unknown", Operations.String())
	require.Equal(t, "unknown", Operation(200).String())
	require.Equal(t, "unknown", Kind(200).String())
	require.Equal(t, "type12", DataType(12).String())
	require.Equal(t, "fp8e5m2", DataType(11).String())
	require.EqualValues(t, bpfOperationOPERATIONS, Operations)
	require.EqualValues(t, bpfOperationOPERATION_SEND, Send)
	require.EqualValues(t, bpfOperationOPERATION_RECV, Recv)
	require.EqualValues(t, bpfOperationOPERATION_REDUCE_SCATTER, ReduceScatter)
	require.EqualValues(t, bpfKindKINDS, Kinds)
	require.EqualValues(t, bpfKindKIND_SPLIT, Split)
	require.EqualValues(t, bpfKindKIND_ABORT, Abort)
	require.EqualValues(t, bpfKindKIND_DEVICE, Device)
}

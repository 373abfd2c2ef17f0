//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
)

// maxRanks is BPF's MAX_RANKS.
const maxRanks = 1 << 20

// decode turns one record of the ring into an event. clockOffset is what
// bootclock.Offset returned.
func decode(raw []byte, clockOffset int64, e *Event) error {
	if uintptr(len(raw)) < unsafe.Sizeof(bpfEvent{}) {
		return fmt.Errorf("ncclcall record of %d bytes, want %d", len(raw), unsafe.Sizeof(bpfEvent{}))
	}
	r := (*bpfEvent)(unsafe.Pointer(unsafe.SliceData(raw)))
	switch {
	case r.Pid == 0, r.Thread == 0:
		return errors.New("ncclcall record without a thread")
	case r.Kind == 0 || r.Kind >= uint32(Kinds):
		return fmt.Errorf("ncclcall record of kind %d", r.Kind)
	}
	*e = Event{
		Time: bootclock.Time(r.TimeNs, clockOffset), Kind: Kind(r.Kind), PID: r.Pid, Thread: r.Thread, Address: r.Address, Hash: r.Hash,
		Rank: max(r.Rank, -1), Size: max(r.Nranks, 0), Color: r.Color, Key: r.Key, Collectives: r.Collectives, Calls: r.Calls,
		bootNS: r.TimeNs, slot: r.Slot, tenant: r.Owner.TenantSlot, user: r.Owner.UserSlot,
	}
	if r.Ids > 0 {
		e.Root = rootOf(r.Id[:])
		e.born = idHashes(r.Id[:])
		e.Hash = e.born[0]
	}
	return nil
}

// rootOf reads where rank 0 listens from a unique id: a magic of eight bytes, then a
// socket address (struct ncclBootstrapHandle, src/include/bootstrap.h).
func rootOf(id []byte) netip.AddrPort {
	const family, port, inet, inet6 = 8, 10, 12, 16 // struct sockaddr_in, sockaddr_in6
	switch binary.LittleEndian.Uint16(id[family:]) {
	case 2: // AF_INET
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(id[inet:inet+4])), binary.BigEndian.Uint16(id[port:]))
	case 10: // AF_INET6
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(id[inet6:inet6+16])), binary.BigEndian.Uint16(id[port:]))
	default:
		return netip.AddrPort{}
	}
}

// communicator turns an entry of the map into what it says.
func communicator(key *bpfCommunicatorKey, value *bpfCommunicator, clockOffset int64) Communicator {
	c := Communicator{
		PID: key.Pid, Address: key.Address, Rank: -1, Device: -1,
		First: bootclock.Time(value.FirstNs, clockOffset), Collectives: value.Collectives, Calls: value.Calls,
		Last: Call{
			Time: bootclock.Time(value.LastNs, clockOffset), Operation: operation(value.LastOperation), Type: DataType(value.LastType),
			Count: value.LastCount, Root: value.LastRoot,
		},
		Recent: recent(value, clockOffset), Samples: samples(value, clockOffset),
		slot: value.Slot, owner: [2]uint16{value.Owner.TenantSlot, value.Owner.UserSlot},
	}
	identify(&c, value)
	return c
}

func operation(o uint32) Operation { return Operation(min(o, uint32(Operations))) % Operations }

func identify(c *Communicator, value *bpfCommunicator) {
	l := &value.Layout
	switch {
	case bpfIdentity(value.Identity) == bpfIdentityIDENTITY_NO_LAYOUT:
		return
	case bpfIdentity(value.Identity) == bpfIdentityIDENTITY_UNREAD || l.Rank < 0 || l.Rank >= l.Nranks || l.Nranks > maxRanks:
		c.Identity = Unread
		return
	}
	c.Identity, c.Rank, c.Size, c.Device = Known, l.Rank, l.Nranks, l.Device
	if bpfIdentity(value.Identity) == bpfIdentityIDENTITY_READ {
		c.Hash, c.GPU = l.Hash, busID(value)
	}
}

// busID is the PCI address of a communicator's GPU: the hexadecimal digits of
// "0000:1b:00.0" (busIdToInt64, src/misc/utils.cc). It is believed where the fields in
// front are compute capabilities, as they are from NCCL 2.18.3 on: ten times the major
// version and the minor.
func busID(value *bpfCommunicator) string {
	const newest, last = 999, 0xffff_ff_ff_f
	l := &value.Layout
	if l.MinCapability < 10 || l.Capability < l.MinCapability || l.MaxCapability < l.Capability || l.MaxCapability > newest {
		return ""
	}
	if l.BusId <= 0 || l.BusId > last || l.BusId&0xf > 7 || l.BusId>>4&0xff > 0x1f {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", l.BusId>>20, l.BusId>>12&0xff, l.BusId>>4&0xff, l.BusId&0xf)
}

// recent are the last collectives, oldest first. An entry whose sequence is not that of
// its place was lost to another thread, or is being written.
func recent(value *bpfCommunicator, clockOffset int64) []Numbered {
	const kept = uint64(len(value.Recent))
	from := value.Collectives - min(value.Collectives, kept)
	list := make([]Numbered, 0, value.Collectives-from)
	for n := from; n < value.Collectives; n++ {
		r := &value.Recent[n%kept]
		if r.Sequence != uint16(n) || r.TimeNs == 0 {
			continue
		}
		list = append(list, Numbered{Number: n, Call: Call{
			Time: bootclock.Time(r.TimeNs, clockOffset), Operation: operation(uint32(r.Operation)), Type: DataType(r.Type), Count: r.Count, Root: r.Root,
		}})
	}
	return list
}

// samples are the calls that every rank samples, oldest first. One that is no older call,
// or that another thread has mixed up, is left out.
func samples(value *bpfCommunicator, clockOffset int64) []Sample {
	const kept = uint64(len(value.Samples))
	from := value.Sampled - min(value.Sampled, kept)
	list := make([]Sample, 0, value.Sampled-from)
	for n := from; n < value.Sampled; n++ {
		s := &value.Samples[n%kept]
		behind := uint64(uint32(value.Collectives) - s.Number)
		if s.TimeNs == 0 || behind == 0 || behind > value.Collectives {
			continue
		}
		one := Sample{Number: value.Collectives - behind, Time: bootclock.Time(s.TimeNs, clockOffset), Pause: time.Duration(s.PauseUs) * time.Microsecond}
		if last := len(list) - 1; last >= 0 && (list[last].Number >= one.Number || list[last].Time.After(one.Time)) {
			continue
		}
		list = append(list, one)
	}
	return list
}

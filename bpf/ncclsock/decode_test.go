//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"math"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func socketRecord(change func(*bpfSocketRecord)) *bpfSocketRecord {
	r := &bpfSocketRecord{
		Pid: 7, Cookie: 9, State: uint8(Established), BytesReceived: 1000, BytesSent: 2000, BytesRetransmitted: 500,
		Unread: 10, Unsent: 20, Unacked: 30, SentAgeJiffies: 250, ReceivedAgeJiffies: 500,
		Endpoints: bpfEndpoints{Family: unix.AF_INET, Local: [16]uint8{10, 0, 0, 1}, LocalPort: 0x5000},
	}
	change(r)
	return r
}

func TestAConnectionThatIsResetWhileItIsReadHasNothingUnsent(t *testing.T) {
	info := func(segments uint32) unix.TCPInfo {
		return unix.TCPInfo{State: uint8(CloseWait), Segs_in: segments, Notsent_bytes: 65538}
	}
	for name, tc := range map[string]struct {
		state State
		info  unix.TCPInfo
		want  uint64
	}{
		"reset between state and numbers": {CloseWait, info(0), 0},
		"never reset":                     {CloseWait, info(2), 65538},
		"has not heard of its peer yet":   {SynSent, info(0), 0},
		"an answer without a tcp_info":    {Established, unix.TCPInfo{Notsent_bytes: 7}, 7},
	} {
		r := bpfSocketRecord{State: uint8(tc.state)}
		fillFromInfo(&r, &tc.info)
		var s Socket
		s.State = State(r.State)
		decodeQueues(&r, &s)
		require.EqualValues(t, tc.want, s.UnsentBytes, name)
	}
}

func TestSequenceNumbersOfSYNAndFINAreNoBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		state                               State
		unread, unsent, unacked             uint32
		wantUnread, wantUnsent, wantUnacked uint32
	}{
		"established":                       {Established, 1, 2, 3, 1, 2, 3},
		"SYN in flight":                     {SynSent, 5, 0, 1, 0, 0, 0},
		"SYN not sent yet":                  {SynSent, 0, 1, 0, 0, 0, 0},
		"numbers not all set yet":           {SynSent, 0, 1684909097, 7, 0, 0, 0},
		"ended, with bytes never sent":      {Close, 0, 5, 7, 0, 0, 0},
		"our FIN in flight":                 {FinWait1, 4, 0, 1, 4, 0, 0},
		"our FIN behind unsent bytes":       {FinWait1, 4, 11, 7, 4, 10, 7},
		"our FIN acknowledged":              {FinWait2, 4, 0, 0, 4, 0, 0},
		"their FIN unread":                  {CloseWait, 11, 2, 3, 10, 2, 3},
		"their FIN read":                    {CloseWait, 0, 2, 3, 0, 2, 3},
		"both FINs":                         {LastAck, 11, 0, 3, 10, 0, 2},
		"both FINs at once":                 {Closing, 1, 1, 3, 0, 0, 3},
		"a listener counts connections":     {Listen, 3, 4, 5, 0, 0, 0},
		"queues moved while they were read": {Established, math.MaxUint32, math.MaxUint32 - 5, 3, 0, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var s Socket
			require.NoError(t, decodeSocket(socketRecord(func(r *bpfSocketRecord) {
				r.State, r.Unread, r.Unsent, r.Unacked = uint8(tc.state), tc.unread, tc.unsent, tc.unacked
			}), time.Millisecond, &s))
			require.Equal(t, []uint32{tc.wantUnread, tc.wantUnsent, tc.wantUnacked}, []uint32{s.ReceiveQueueBytes, s.UnsentBytes, s.UnackedBytes})
		})
	}
}

func TestProgressCountsEachByteOnce(t *testing.T) {
	var s Socket
	require.NoError(t, decodeSocket(socketRecord(func(*bpfSocketRecord) {}), 4*time.Millisecond, &s))
	require.EqualValues(t, 1500, s.BytesSent)
	require.EqualValues(t, 1470, s.BytesAcked)
	require.EqualValues(t, 990, s.BytesRead)
	require.Equal(t, time.Second, s.LastSentAge)
	require.Equal(t, 2*time.Second, s.LastReceivedAge)
	require.Equal(t, netip.MustParseAddrPort("10.0.0.1:80"), s.Local)
}

func TestAges(t *testing.T) {
	require.Equal(t, time.Duration(0), age(math.MaxUint32-3, time.Millisecond), "data moved while we read")
	require.Equal(t, 40*24*time.Hour, age(40*24*3600*1000, time.Millisecond), "more than half of what 32 bits hold")
	var s Socket
	require.NoError(t, decodeSocket(socketRecord(func(r *bpfSocketRecord) { r.BytesSent, r.BytesReceived = 0, 0 }), 1, &s))
	require.Negative(t, s.LastSentAge)
	require.Negative(t, s.LastReceivedAge)
	require.Negative(t, s.Age)
}

func TestDecodeRefusesWhatCannotBe(t *testing.T) {
	var s Socket
	require.ErrorIs(t, decodeSocket(socketRecord(func(r *bpfSocketRecord) { r.Endpoints.Family = unix.AF_UNIX }), 1, &s), errInvalid)
	var c Change
	require.ErrorIs(t, decodeChange(nil, 0, &c), errInvalid)
	raw := changeRecord(bpfChange{Endpoints: bpfEndpoints{Family: unix.AF_INET}, Kind: 2})
	require.ErrorIs(t, decodeChange(raw, 0, &c), errInvalid)
	require.ErrorIs(t, decodeChange(raw[:len(raw)-1], 0, &c), errInvalid)
	require.ErrorIs(t, parseDiag(make([]byte, 71), &bpfSocketRecord{}), errInvalid)
	require.ErrorIs(t, parseDiag(append(make([]byte, 72), 9, 0, 2, 0), &bpfSocketRecord{}), errInvalid)
}

func changeRecord(r bpfChange) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))...)
}

func TestDecodeChange(t *testing.T) {
	var c Change
	require.NoError(t, decodeChange(changeRecord(bpfChange{
		TimeNs: 5, Cookie: 3, Pid: 7, Error: int32(unix.ETIMEDOUT), OldState: uint8(Established), NewState: uint8(Close),
		Endpoints: bpfEndpoints{Family: unix.AF_INET6, Remote: netip.MustParseAddr("::ffff:10.0.0.2").As16(), RemotePort: 0x5000},
	}), int64(time.Hour), &c))
	require.Equal(t, Change{
		Time: time.Unix(3600, 5), Cookie: 3, PID: 7, Error: int32(unix.ETIMEDOUT), Old: Established, New: Close,
		Local: netip.MustParseAddrPort("[::]:0"), Remote: netip.MustParseAddrPort("10.0.0.2:80"),
	}, c)
}

// The structures of sock_diag are the kernel's own.
func TestLayoutOfSockDiag(t *testing.T) {
	require.EqualValues(t, 48, unsafe.Sizeof(diagSocketID{}))
	require.EqualValues(t, 56, unsafe.Sizeof(diagRequestBody{}))
	require.EqualValues(t, 72, unsafe.Sizeof(diagMessage{}))
	require.Len(t, diagRequest(unix.AF_INET), 56)
}

func TestLayoutIsThatOfTheObject(t *testing.T) {
	spec, err := loadBpf()
	require.NoError(t, err)
	for name, size := range map[string]uintptr{"socket_record": unsafe.Sizeof(bpfSocketRecord{}), "change": unsafe.Sizeof(bpfChange{})} {
		var s *btf.Struct
		require.NoError(t, spec.Types.TypeByName(name, &s))
		require.EqualValues(t, size, s.Size)
	}
}

func TestRecordsCutByTheReaderAreWhole(t *testing.T) {
	it := &iterator{tick: 1, buffer: make([]byte, 4*recordBytes)}
	var s Snapshot
	record := unsafe.Slice((*byte)(unsafe.Pointer(socketRecord(func(*bpfSocketRecord) {}))), recordBytes)
	stream := append(append([]byte(nil), record...), record...)
	have := 0
	for _, piece := range [][]byte{stream[:100], stream[100 : recordBytes+1], stream[recordBytes+1:]} {
		have = it.decode(have+copy(it.buffer[have:], piece), &s)
	}
	require.Zero(t, have)
	require.Len(t, s.Sockets, 2)
	require.Equal(t, s.Sockets[0], s.Sockets[1])
}

func FuzzDecode(f *testing.F) {
	f.Add(unsafe.Slice((*byte)(unsafe.Pointer(socketRecord(func(*bpfSocketRecord) {}))), recordBytes))
	f.Add(changeRecord(bpfChange{Endpoints: bpfEndpoints{Family: unix.AF_INET6}}))
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c Change
		if decodeChange(raw, 0, &c) == nil {
			require.LessOrEqual(t, c.Kind, Retransmitted)
		}
		var r bpfSocketRecord
		_ = parseDiag(raw, &r)
		check(t, &r)
		if copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordBytes), raw) == recordBytes {
			check(t, &r)
		}
	})
}

// check holds for every socket, whatever the record says.
func check(t *testing.T, r *bpfSocketRecord) {
	var s Socket
	if decodeSocket(r, 4*time.Millisecond, &s) != nil {
		return
	}
	require.GreaterOrEqual(t, s.LastSentAge, time.Duration(-1))
	require.GreaterOrEqual(t, s.LastReceivedAge, time.Duration(-1))
	require.GreaterOrEqual(t, s.Age, time.Duration(-1))
	require.LessOrEqual(t, s.BytesRead, s.BytesReceived)
	require.LessOrEqual(t, s.BytesAcked, s.BytesSent)
	require.LessOrEqual(t, int(s.ReceiveQueueBytes), math.MaxInt32)
	require.False(t, s.Local.Addr().Is4In6() || s.Remote.Addr().Is4In6())
	require.LessOrEqual(t, len(s.Handshake), 13)
}

func BenchmarkDecodeSocket(b *testing.B) {
	r := socketRecord(func(*bpfSocketRecord) {})
	var s Socket
	b.ReportAllocs()
	for b.Loop() {
		if err := decodeSocket(r, time.Millisecond, &s); err != nil {
			b.Fatal(err)
		}
	}
}

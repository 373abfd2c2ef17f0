package dcgm

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// script is an engine that does what a test says, and knows whether a call is
// allowed: after a failed Connect each would end the process.
type script struct {
	t          *testing.T
	connect    error
	connected  bool
	gpus       []uint
	gpusErr    error
	values     map[uint][]Value
	valuesErr  map[uint]error
	lost       map[uint]bool
	watched    []string
	watchErr   map[string]error
	links      []Link
	linksErr   error
	health     []Finding
	healthErr  error
	xids       []Xid
	since      []time.Time
	violations chan Violation
	dropped    uint64
}

func (s *script) called() { require.True(s.t, s.connected, "a call without a connection") }

func (s *script) Connect(string) error {
	s.connected = s.connect == nil
	return s.connect
}
func (s *script) Version() (string, error) { s.called(); return "4.4.1", nil }
func (s *script) GPUs() ([]uint, error)    { s.called(); return s.gpus, s.gpusErr }
func (s *script) Lost(gpu uint) bool       { s.called(); return s.lost[gpu] }
func (s *script) Watch(name string, _ []uint16, _ time.Duration, _ int) error {
	s.called()
	s.watched = append(s.watched, name)
	return s.watchErr[name]
}
func (s *script) Values(gpu uint, _ []uint16) ([]Value, error) {
	s.called()
	return s.values[gpu], s.valuesErr[gpu]
}
func (s *script) Xids(since time.Time) ([]Xid, time.Time, error) {
	s.called()
	s.since = append(s.since, since)
	return s.xids, since.Add(time.Second), nil
}
func (s *script) Links() ([]Link, error)     { s.called(); return s.links, s.linksErr }
func (s *script) WatchHealth() error         { s.called(); return s.healthErr }
func (s *script) Health() ([]Finding, error) { s.called(); return s.health, s.healthErr }
func (s *script) Violations([]string) (<-chan Violation, error) {
	s.called()
	return s.violations, nil
}
func (s *script) Dropped() uint64 { s.called(); return s.dropped }

// tracker notes which calls were named, and that each ended.
type tracker struct {
	calls []string
	open  int
}

func (t *tracker) Begin(call, _ string) { t.calls, t.open = append(t.calls, call), t.open+1 }
func (t *tracker) End()                 { t.open-- }

func busOf(address string) Value { return Value{Field: fieldBusID, Kind: Text, Text: address} }

func newScript(t *testing.T) *script {
	return &script{
		t: t, gpus: []uint{0, 1}, values: map[uint][]Value{0: {busOf("00000000:1A:00.0")}, 1: {busOf("00000000:2A:00.0")}},
		valuesErr: map[uint]error{}, lost: map[uint]bool{}, watchErr: map[string]error{}, violations: make(chan Violation, 10),
	}
}

func everything() Options {
	return Options{Address: "127.0.0.1:5555", Every: time.Second, Profiling: true, Health: true, Listen: true}
}

// open connects to an engine that is ready.
func open(t *testing.T, s *script) *source {
	source, calls := NewSource(s, everything()).(*source), &tracker{}
	state := source.Open(calls)
	require.Equal(t, protocol.Ready, state.Name, state.Detail)
	require.Zero(t, calls.open, "each call that began has ended")
	return source
}

func TestNoCallAfterAFailedConnect(t *testing.T) {
	for name, tc := range map[string]struct {
		address string
		err     error
		state   string
	}{
		"no library":      {"127.0.0.1:5555", ErrLibraryAbsent, protocol.LibraryAbsent},
		"an old library":  {"127.0.0.1:5555", ErrLibraryOld, protocol.Failed},
		"no engine":       {"127.0.0.1:5555", errors.New("refused"), protocol.EngineAbsent},
		"none of its own": {Embedded, errors.New("no driver"), protocol.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.connect = tc.err
			options := everything()
			options.Address = tc.address
			state := NewSource(s, options).Open(&tracker{})
			require.Equal(t, tc.state, state.Name)
			require.Contains(t, state.Detail, tc.err.Error())
		})
	}
}

func TestOnlyWhatIsWantedIsWatched(t *testing.T) {
	s := newScript(t)
	require.Equal(t, protocol.Ready, NewSource(s, Options{Every: time.Second}).Open(&tracker{}).Name)
	require.Equal(t, []string{"tracecore", "tracecore links"}, s.watched)
	s = newScript(t)
	open(t, s)
	require.Equal(t, []string{"tracecore", "tracecore links", "tracecore profiling", "tracecore xid"}, s.watched)
}

func TestABrokenConnectionEndsTheReading(t *testing.T) {
	for name, breaks := range map[string]func(*script){
		"when the GPUs are listed": func(s *script) { s.gpusErr = ConnectionNotValid },
		"when a GPU is read":       func(s *script) { s.valuesErr[1] = ConnectionNotValid },
		"the engine forgot us":     func(s *script) { s.gpusErr = Uninitialized },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			source := open(t, s)
			breaks(s)
			snapshot, over := source.Snapshot()
			require.Nil(t, snapshot)
			require.Equal(t, protocol.ConnectionLost, over.Name)
		})
	}
}

func TestAGPUThatIsLostKeepsItsName(t *testing.T) {
	for name, loses := range map[string]func(*script){
		"the engine says so":  func(s *script) { s.lost[0] = true },
		"a call says so":      func(s *script) { s.valuesErr[0] = GPULost },
		"its values say so":   func(s *script) { s.values[0] = []Value{{Field: 150, Code: GPULost}} },
		"its driver was left": func(s *script) { s.valuesErr[0] = GPUsDetached },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			source := open(t, s)
			loses(s)
			snapshot, over := source.Snapshot()
			require.Nil(t, over)
			require.Equal(t, protocol.GPU{Identity: device.Identity{Index: 0, PCI: "0000:1a:00.0"}, Lost: true}, snapshot.GPUs[0])
			require.False(t, snapshot.GPUs[1].Lost, "the other is read on")
		})
	}
}

func TestWhatIsOptionalFailsOnceAndIsTold(t *testing.T) {
	s := newScript(t)
	s.watchErr["tracecore profiling"], s.watchErr["tracecore links"] = ProfilingNotSupported, Code(-17)
	s.linksErr, s.healthErr = errors.New("a text alone"), Code(-17)
	source := NewSource(s, everything()).(*source)
	require.Equal(t, protocol.Ready, source.Open(&tracker{}).Name)
	s.dropped = 3
	snapshot, _ := source.Snapshot()
	require.Equal(t, []protocol.Failure{{Call: "nvlink_states", Code: "failed"}, {Call: "policy_violations", Code: "dropped"}}, sorted(snapshot.GPUs[0].Failures))
	require.False(t, snapshot.GPUs[0].HealthKnown)
	snapshot, _ = source.Snapshot()
	require.NotContains(t, snapshot.GPUs[0].Failures, protocol.Failure{Call: "policy_violations", Code: "dropped"}, "those of before")
}

func sorted(failures []protocol.Failure) []protocol.Failure {
	for i := range failures {
		for j := range i {
			if failures[i].Call < failures[j].Call {
				failures[i], failures[j] = failures[j], failures[i]
			}
		}
	}
	return failures
}

func TestUnitsAndBlanks(t *testing.T) {
	number := func(id uint16, n int64) Value { return Value{Field: id, Kind: Int, Int: n} }
	float := func(id uint16, f float64) Value { return Value{Field: id, Kind: Float, Float: f} }
	s := newScript(t)
	s.links = []Link{{GPU: 0, Number: 3, Up: true}, {GPU: 0, Number: 4}}
	s.health = []Finding{{GPU: 0, System: "memory", Failed: true, Text: "t"}, {GPU: 7, System: "memory"}}
	s.values[0] = append(s.values[0],
		float(155, 650.5), number(250, 81920), number(1009, 2_000_000), number(200, 7), number(240, 5), number(241, 6), number(1422, 1), number(1423, 2),
		float(1004, 0.5), float(1005, 1.5), float(1002, math.NaN()), number(311, 3), number(828, 2), number(403, 9), number(404, 1),
		number(150, -5), Value{Field: 140, Kind: Blank}, Value{Field: 156, Code: NotSupported}, Value{Field: 100, Code: -17}, number(63, 9<<16))
	snapshot, _ := open(t, s).Snapshot()
	g := snapshot.GPUs[0]
	require.Equal(t, "9.0", g.Computed)
	require.Equal(t, map[device.Quantity]uint64{device.PowerUsage: 650500, device.MemoryTotal: 80 << 30, device.PCIeTransmit: 2000}, g.Values)
	require.Equal(t, map[string]float64{"tensor": 0.5}, g.Ratios)
	require.Equal(t, map[string]uint64{"sw_power_cap": 5, "sw_thermal_slowdown": 1, "hw_thermal_slowdown": 2}, g.Throttled)
	require.Equal(t, []protocol.ECC{{ECCCounter: device.ECCCounter{Type: "uncorrected", Lifetime: "volatile", Location: "all"}, Count: 3}}, g.ECC)
	require.Equal(t, []protocol.Link{
		{Number: 3, Values: map[device.LinkQuantity]uint64{device.LinkState: 1, device.LinkTransmitRate: 2 * 1024 * 1000, device.LinkCRCFlit: 9}},
		{Number: 4, Values: map[device.LinkQuantity]uint64{device.LinkState: 0, device.LinkCRCFlit: 1}},
	}, g.Links)
	require.Equal(t, []protocol.Incident{{System: "memory", Failed: true, Text: "t"}}, g.Health)
	require.True(t, g.HealthKnown)
	require.Equal(t, []protocol.Failure{{Call: "field_100", Code: "no_permission"}}, g.Failures)
}

func TestEvents(t *testing.T) {
	s := newScript(t)
	source := open(t, s)
	s.xids = []Xid{{GPU: 1, Code: 79}, {GPU: 0, Code: 0}, {GPU: 9, Code: 48}}
	got := source.Wait(&tracker{}, time.Millisecond)
	require.Len(t, got, 2, "0 is no Xid")
	require.Equal(t, device.Event{PCI: "0000:2a:00.0", Type: device.EventXid, Data: 79, GPUInstance: device.NoInstance, ComputeInstance: device.NoInstance}, got[0].Event)
	require.Empty(t, got[1].PCI, "a GPU that nobody knows: the receiver counts it")
	source.Wait(&tracker{}, time.Millisecond)
	require.Equal(t, time.Second, s.since[1].Sub(s.since[0]), "each Xid once")

	s.violations <- Violation{GPU: 0, Condition: PolicyECC}
	require.Equal(t, device.EventECCUncorrected, source.Wait(&tracker{}, time.Hour)[0].Type)
	s.violations <- Violation{GPU: 0, Condition: PolicyNVLink, Text: "7 errors"}
	got = source.Wait(&tracker{}, time.Hour)
	require.Equal(t, protocol.EventPolicy, got[0].Type)
	require.Equal(t, "nvlink", got[0].Kind)
	require.Equal(t, "7 errors", got[0].Text)
}

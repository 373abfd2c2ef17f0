package gpureceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/process"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
)

// used is a GPU with these processes that is used that much.
func used(percent uint64, pids ...uint32) protocol.GPU {
	return at("0000:1a:00.0", func(g *protocol.GPU) {
		g.Values[device.UtilizationGPU], g.Values[device.ClockSM], g.Values[device.ClockSMMax] = percent, 495, 1980
		for _, pid := range pids {
			g.Processes = append(g.Processes, device.Process{PID: pid, GPUInstance: device.NoInstance, ComputeInstance: device.NoInstance})
		}
	})
}

// watched is a rank that stands, and readings of its GPU, one in ten seconds.
type watched struct {
	standing standing
	gpus     *inventory.Inventory
	now      time.Time
	said     []string // state of each record
	last     activity
}

func watch(pids ...uint32) *watched {
	w := &watched{standing: standing{}, gpus: inventory.New(10 * time.Second), now: start}
	for _, pid := range pids {
		w.standing.hear(gpuask.Rank{PID: pid, Stands: true}, w.gpus, start)
	}
	return w
}

func (w *watched) read(gpus ...protocol.GPU) {
	w.now = w.now.Add(10 * time.Second)
	w.gpus.Update(snapshot(gpus...), w.now)
	for _, one := range w.standing.look(w.gpus, w.now) {
		w.said, w.last = append(w.said, one.state), one
	}
}

func TestThreeReadingsInARowTellWhatAGPUDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		percents []uint64
		want     []string
	}{
		"two":                      {[]uint64{0, 0}, nil},
		"idle":                     {[]uint64{0, 0, 0, 0, 0}, []string{activityIdle}},
		"busy":                     {[]uint64{100, 96, 100, 99}, []string{activityBusy}},
		"between":                  {[]uint64{40, 40, 40}, []string{activityVaries}},
		"idle and busy":            {[]uint64{0, 100, 0}, []string{activityVaries}},
		"busy for a moment":        {[]uint64{0, 0, 0, 1, 0, 0, 0}, []string{activityIdle, activityVaries, activityIdle}},
		"busy, then idle for good": {[]uint64{100, 100, 100, 0, 0, 0, 0}, []string{activityBusy, activityVaries, activityIdle}},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(7)
			for _, percent := range tc.percents {
				w.read(used(percent, 7))
			}
			require.Equal(t, tc.want, w.said)
		})
	}
}

func TestAReadingIsOfTheStandstillAlone(t *testing.T) {
	w := watch()
	w.read(used(0, 7))
	w.standing.hear(gpuask.Rank{PID: 7, Stands: true}, w.gpus, w.now.Add(9500*time.Millisecond))
	w.read(used(0, 7)) // 0.5 s after it was told: half of what it is about was before
	stood := w.now
	w.read(used(100, 7))
	w.read(used(100, 7))
	require.Empty(t, w.said)
	w.read(used(100, 7))
	require.Equal(t, []string{activityBusy}, w.said)
	require.False(t, w.last.since.Before(stood))
	require.Equal(t, w.now, w.last.last)
	require.Equal(t, 25, w.last.clock)
}

func TestOnlyRanksThatStandAreTold(t *testing.T) {
	w := watch(7, 8)
	w.standing.hear(gpuask.Rank{PID: 8}, w.gpus, start) // it goes on
	for range 3 {
		w.read(used(0, 7, 8, 9))
	}
	require.Equal(t, []string{activityIdle}, w.said)
	require.EqualValues(t, 7, w.last.pid)
	require.True(t, w.last.shared)
}

func TestWhoIsOnNoGPUIsForgotten(t *testing.T) {
	w := watch(7, 8)
	for range 2 {
		w.read(used(0, 7))
		require.Len(t, w.standing, 2)
	}
	w.read(used(0, 7))
	require.Len(t, w.standing, 1)
	for range 61 {
		w.read(used(0, 7))
	}
	require.Empty(t, w.standing, "nor is it watched for ever")
	for pid := range uint32(maxStanding + 7) {
		w.standing.hear(gpuask.Rank{PID: pid, Stands: true}, w.gpus, w.now)
	}
	require.Len(t, w.standing, maxStanding)
	require.NotNil(t, w.standing[7], "a GPU knows of it")

	delete(w.standing, 7)
	w.standing.hear(gpuask.Rank{PID: maxStanding, Stands: true}, w.gpus, w.now)
	require.Len(t, w.standing, maxStanding)
	w.standing.hear(gpuask.Rank{PID: 7, Stands: true}, w.gpus, w.now)
	require.NotNil(t, w.standing[7], "others give way")
}

// The list of processes of a GPU may fail once: who stands is watched on.
func TestOneListOfProcessesThatFails(t *testing.T) {
	w := watch(7)
	for _, gpu := range []protocol.GPU{used(0, 7), used(0), used(0, 7), used(0), used(0, 7)} {
		w.read(gpu)
	}
	require.Equal(t, []string{activityIdle}, w.said)
}

func TestAGPUThatSaysNothingIsNotTold(t *testing.T) {
	w := watch(7)
	for range 4 {
		g := used(0, 7)
		delete(g.Values, device.UtilizationGPU) // MIG
		w.read(g)
	}
	require.Empty(t, w.said)
	for range 4 {
		g := used(0, 7)
		g.Lost = true
		w.read(g)
	}
	require.Empty(t, w.said)
}

func TestWhatHoldsTheClocksDownIsToldOfEachReadingAlone(t *testing.T) {
	hot := func(g protocol.GPU) protocol.GPU {
		g.Values[device.ThrottleActive] = 0x40 | 0x4 | 0x1 // heat, power cap, idle
		return g
	}
	w := watch(7)
	w.read(hot(used(100, 7)))
	w.read(used(100, 7))
	w.read(hot(used(100, 7)))
	require.Empty(t, w.last.held)
	w.read(hot(used(100, 7)))
	w.read(hot(used(100, 7)))
	require.Equal(t, []string{device.ThermalHardware}, w.last.held)
	require.Len(t, w.said, 2)
}

// TestARankThatStandsIsToldOf: from the receiver that sees the rank to the record.
func TestARankThatStandsIsToldOf(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.Source, config.CollectionInterval = NVML, minInterval
	h := newFakeHelper(func() protocol.Message { return protocol.Message{Snapshot: snapshot(used(0, 4711, 4712))} }, found(protocol.Ready))
	r := run(t, newFactory(func(*Config, task) (process.Session, error) { return h, nil }), config)
	r.until(protocol.Ready)
	gpuask.Stands(4711, true)
	a := r.record("gpu.activity").Attributes().AsRaw()
	delete(a, "gpu.activity.since_unix_nano")
	require.Equal(t, map[string]any{
		"gpu.id": "0000:1a:00.0", "gpu.uuid": "GPU-0000:1a:00.0", "gpu.vendor": "nvidia", "process.pid": int64(4711), "tracecore.trust": "proven",
		"gpu.activity.state": "idle", "gpu.activity.readings": int64(3), "gpu.activity.shared": true, "gpu.activity.clock_percent": int64(25),
	}, a)
}

func TestActivityNamesTheRank(t *testing.T) {
	c := newTestConverter(t)
	gpus := inventory.New(time.Second)
	gpus.Update(snapshot(used(0, 4711)), start)
	logs := c.activities([]activity{{gpu: gpus.All()[0], pid: 4711, state: activityBusy, since: start, last: start.Add(time.Second), held: []string{device.ThermalHardware}}}, start)
	one := logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	require.Equal(t, "GPU 0000:1a:00.0, on which pid 4711 stands still, was busy at 3 readings in a row", one.Body().Str())
	a := one.Attributes().AsRaw()
	require.Equal(t, int64(3), a["gen_ai.training.rank"])
	require.Equal(t, "job-1", a["gen_ai.training.job_id"])
	require.Equal(t, []any{device.ThermalHardware}, a["gpu.activity.throttle_reasons"])
	require.NotContains(t, a, "gpu.activity.clock_percent")
}

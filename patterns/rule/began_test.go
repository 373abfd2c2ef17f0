package rule

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func TestBeganIsReadFromWhatTheEventSays(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC).UnixNano()
	second := int64(time.Second)
	for name, tc := range map[string]struct {
		event, attribute string
		value            any
		want             int64
	}{
		"an age":                     {"fuse.stall", "fuse.stall.age_ns", 3 * second, now - 3*second},
		"an age in seconds":          {"host.lockup", "kernelevents.blocked_seconds", int64(122), now - 122*second},
		"a fraction of seconds":      {"host.lockup", "kernelevents.blocked_seconds", 0.5, now - second/2},
		"a moment":                   {"nccl.collective.incomplete", "nccl.collective.since_unix_nano", now - 600*second, now - 600*second},
		"how long they waited":       {"nccl.collective.incomplete", "nccl.collective.waited_ns", 600 * second, now - 600*second},
		"an event that says nothing": {"process.exit", "fuse.stall.age_ns", 3 * second, now},
		"no attribute":               {"fuse.stall", "other", 3 * second, now},
		"no number":                  {"fuse.stall", "fuse.stall.age_ns", "long ago", now},
		"an age below zero":          {"fuse.stall", "fuse.stall.age_ns", -3 * second, now},
		"an age beyond all time":     {"fuse.stall", "fuse.stall.age_ns", int64(math.MaxInt64), now},
		"no number at all":           {"host.lockup", "kernelevents.blocked_seconds", math.NaN(), now},
		"older than is believed":     {"fuse.stall", "fuse.stall.age_ns", maxAge + 1, now},
		"a moment to come":           {"nccl.collective.incomplete", "nccl.collective.since_unix_nano", now + 1, now},
		"a moment before all time":   {"nccl.collective.incomplete", "nccl.collective.since_unix_nano", int64(math.MinInt64), now},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := pcommon.NewMap()
			require.NoError(t, attributes.FromRaw(map[string]any{tc.attribute: tc.value}))
			require.Equal(t, tc.want, NewBeginnings().Began(tc.event, now, attributes))
		})
	}
}

func TestARecordOfHowAThingIsNowIsOfWhenItLastDidSo(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC).UnixNano()
	for name, tc := range map[string]struct {
		event string
		value any
		want  int64
	}{
		"its last call":   {"nccl.call.stopped", now - 3e9, now - 3e9},
		"a call to come":  {"nccl.call.stopped", now + 3e9, now},
		"no number":       {"nccl.call.stopped", "soon", now},
		"another event":   {"nccl.call.moving", now - 3e9, now},
		"before all time": {"nccl.call.stopped", int64(-1), now},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := pcommon.NewMap()
			require.NoError(t, attributes.FromRaw(map[string]any{"nccl.call.last_unix_nano": tc.value}))
			require.Equal(t, tc.want, NewBeginnings().Last(tc.event, now, attributes))
		})
	}
}

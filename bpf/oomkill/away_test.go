//go:build linux && (amd64 || arm64)

package oomkill

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

func TestAKillWhileNobodyReadIsReadLate(t *testing.T) {
	for _, rung := range []string{RungFentry, RungKprobe, RungStack, RungVictim} {
		t.Run(filepath.Dir(rung), func(t *testing.T) {
			p := open(t, Options{Rung: rung})
			require.NoError(t, p.Close())
			root := filepath.Join(privtest.BPFFS(t), "tracecore")
			p = open(t, Options{Rung: rung, Pin: root})
			if err := p.Report().Away.Err; rung == RungKprobe && err != nil {
				t.Skipf("the link of a kprobe can be pinned since Linux 5.15: %v", err)
			}
			require.NoError(t, p.Report().Away.Err)
			require.True(t, p.Report().Away.Pinned)
			seen, err := p.Fire(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.Close())

			missed, err := Drill(t.Context(), DrillOptions{})
			require.NoError(t, err)
			p = open(t, Options{Rung: rung, Pin: root})
			away := p.Report().Away
			require.NoError(t, away.Err)
			require.Empty(t, away.Gap("kills"))
			require.EqualValues(t, 1, away.Records)
			require.True(t, away.Since.Before(missed.Killed))
			var e Event
			require.NoError(t, p.Read(&e))
			require.True(t, e.Late)
			require.Equal(t, missed.PID, e.PID)
			require.NotEqual(t, seen.PID, e.PID, "what was read is not read again")
			require.Equal(t, missed.CgroupPath, e.CgroupPath)
			require.WithinDuration(t, missed.Killed, e.Time, hosttest.Patience)
			require.True(t, e.Time.Before(away.Until))

			now, err := Drill(t.Context(), DrillOptions{})
			require.NoError(t, err)
			e = next(t, p, now.PID)
			require.False(t, e.Late)
			require.Equal(t, probe.Stats{Events: 2}, p.Stats())
			require.False(t, e.Time.Before(away.Until.Add(-time.Millisecond)))
		})
	}
}

package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const xid79 = "NVRM: Xid (PCI:0000:65:00): 79, pid=42, name=python, GPU has fallen off the bus."

// TestEveryFormOfKernelLogIsRead: forms as dmesg of util-linux 2.38 and
// journalctl of systemd 252 write them.
func TestEveryFormOfKernelLogIsRead(t *testing.T) {
	boot := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	fromUptime := boot.Add(12943965742 * time.Microsecond)
	wall := time.Date(2026, 11, 21, 8, 41, 23, 0, time.UTC)
	micro := wall.Add(965742 * time.Microsecond)
	for name, tt := range map[string]struct {
		options Options
		content string
		host    string
		at      time.Time
	}{
		"dmesg":                      {Options{Boot: boot}, "[12943.965742] " + xid79, "node-17", fromUptime},
		"dmesg without boot time":    {Options{}, "[12943.965742] " + xid79, "node-17", time.Unix(0, 12943965742000)},
		"dmesg that tells its boot":  {Options{}, "[    3.500000] rtc_cmos 00:00: setting system clock to 2026-11-21T05:00:03 UTC (1795237203)\n[12943.965742] " + xid79, "node-17", time.Unix(1795237203, 0).Add(12940465742 * time.Microsecond)},
		"dmesg with callers":         {Options{Boot: boot}, "[12943.965742][  T731] " + xid79, "node-17", fromUptime},
		"dmesg -T":                   {Options{}, "[Sat Nov 21 08:41:23 2026] " + xid79, "node-17", wall},
		"dmesg -x of the kernel":     {Options{Boot: boot}, "kern  :err   : [12943.965742] " + xid79, "node-17", fromUptime},
		"dmesg -x of a process":      {Options{Boot: boot}, "user  :info  : [12943.965742] " + xid79, "node-17", fromUptime},
		"dmesg -r":                   {Options{Boot: boot}, "<3>[12943.965742] " + xid79, "node-17", fromUptime},
		"syslog of a process":        {Options{Boot: boot}, "<15>[12943.965742] " + xid79, "node-17", fromUptime},
		"dmesg iso":                  {Options{}, "2026-11-21T08:41:23,965742+00:00 " + xid79, "node-17", micro},
		"dmesg --json":               {Options{Boot: boot}, "{\n   \"dmesg\": [\n      {\n         \"pri\": 3,\n         \"time\": 12943.965742,\n         \"msg\": \"" + xid79 + "\"\n      }\n   ]\n}\n", "node-17", fromUptime},
		"journal, JSON":              {Options{}, `{"__REALTIME_TIMESTAMP":"1795250483965742","_TRANSPORT":"kernel","_HOSTNAME":"gpu-4","SYSLOG_FACILITY":"0","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"` + xid79 + `"}`, "gpu-4", time.UnixMicro(1795250483965742)},
		"journal, JSON of a process": {Options{}, `{"__REALTIME_TIMESTAMP":"1795250483965742","_TRANSPORT":"kernel","_HOSTNAME":"gpu-4","SYSLOG_FACILITY":"1","SYSLOG_IDENTIFIER":"NVRM","MESSAGE":"` + strings.TrimPrefix(xid79, "NVRM: ") + `"}`, "gpu-4", time.UnixMicro(1795250483965742)},
		"journal, JSON, bytes":       {Options{}, `{"__REALTIME_TIMESTAMP":"1795250483965742","_TRANSPORT":"kernel","_HOSTNAME":"gpu-4","SYSLOG_FACILITY":"0","MESSAGE":` + bytesOf(xid79+"\xff") + `}`, "gpu-4", time.UnixMicro(1795250483965742)},
		"short-monotonic":            {Options{Boot: boot}, "-- Journal begins at Fri 2026-11-20 07:00:00 UTC, ends at Sat 2026-11-21 09:00:00 UTC. --\n[12943.965742] gpu-4 kernel: " + xid79, "gpu-4", fromUptime},
		"short-iso":                  {Options{}, "2026-11-21T08:41:23+0000 gpu-4 kernel: " + xid79, "gpu-4", wall},
		"short-iso-precise":          {Options{}, "2026-11-21T08:41:23.965742+00:00 gpu-4 kernel: " + xid79, "gpu-4", micro},
		"another zone":               {Options{}, "2026-11-21T09:41:23+0100 gpu-4 kernel: " + xid79, "gpu-4", wall},
		"short with a year":          {Options{Year: 2026}, "Nov 21 08:41:23 gpu-4 kernel: " + xid79, "gpu-4", wall},
		"a syslog file":              {Options{}, "2026-11-21T08:41:22.0+00:00 gpu-4 sshd[77]: " + xid79 + "\n2026-11-21T08:41:23.965742+00:00 gpu-4 kernel: [12943.965742] " + xid79, "gpu-4", micro},
		"a host that is given":       {Options{Boot: boot, Host: "gpu-9"}, "[12943.965742] " + xid79, "gpu-9", fromUptime},
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, tt.options, map[string][]byte{"node-17.log": []byte(tt.content)})
			require.Empty(t, got.bad)
			require.Len(t, got.verdicts, 1)
			v := got.verdicts[0]
			require.Equal(t, "gpu_lost", v.Pattern)
			require.Equal(t, tt.host, v.Culprit["host"])
			require.Equal(t, tt.at.UTC(), v.Onset.UTC())
			require.Equal(t, verdict.Partial, v.Confidence, "nothing in a saved log shows who wrote a line")
		})
	}
}

func bytesOf(text string) string {
	numbers := make([]string, len(text))
	for i := range numbers {
		numbers[i] = fmt.Sprint(text[i])
	}
	return "[" + strings.Join(numbers, ",") + "]"
}

func TestALogWithoutTimeOfDaySaysSo(t *testing.T) {
	got := played(t, Options{}, map[string][]byte{"node-17.log": []byte("[1.5] " + xid79)})
	require.Len(t, got.notes, 1)
	require.Contains(t, got.notes[0], "--boot-time")
}

func TestTimesWithoutAYearAreRefused(t *testing.T) {
	got := played(t, Options{}, map[string][]byte{"node-17.log": []byte("Nov 21 08:41:23 gpu-4 kernel: " + xid79)})
	require.Len(t, got.bad, 1)
	require.Contains(t, got.bad[0], "node-17.log:1: its time has no year: give --year")
	require.Empty(t, got.verdicts)
}

// TestOtherFormsOfKernelLogSayWhichAreRead: dmesg -T in another language, dmesg -H,
// and other forms of journalctl.
func TestOtherFormsOfKernelLogSayWhichAreRead(t *testing.T) {
	for name, log := range map[string]string{
		"dmesg -T in Chinese": "[五 5月 15 17:19:17 2026] " + xid79,
		"dmesg -H":            "[Nov21 08:41] " + xid79,
		"short-full":          "Sat 2026-11-21 08:41:23 UTC gpu-4 kernel: " + xid79,
		"short-unix":          "1795250483.965742 gpu-4 kernel: " + xid79,
		"export":              "__REALTIME_TIMESTAMP=1795250483965742\n_TRANSPORT=kernel\nMESSAGE=" + xid79 + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			got := played(t, Options{}, map[string][]byte{"node-17.log": []byte(log)})
			require.Len(t, got.bad, 1)
			require.Contains(t, got.bad[0], "save what `dmesg` or `journalctl -k -o json` prints")
			require.Empty(t, got.verdicts)
		})
	}
}

func TestTimesWithoutAZoneAreInTheOneGiven(t *testing.T) {
	zone := time.FixedZone("two hours east", 7200)
	got := played(t, Options{Zone: zone}, map[string][]byte{"node-17.log": []byte("[Sat Nov 21 08:41:23 2026] " + xid79)})
	require.Equal(t, time.Date(2026, 11, 21, 6, 41, 23, 0, time.UTC), got.verdicts[0].Onset.UTC())
}

// TestARecordOfSeveralLinesIsOne: NVIDIA's driver reports a lost GPU in a record
// of several lines, which dmesg indents.
func TestARecordOfSeveralLinesIsOne(t *testing.T) {
	got := played(t, Options{}, map[string][]byte{"node-17.log": []byte("[    1.000000] NVRM: The NVIDIA GPU 0000:65:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n[    2.000000] next\n")})
	require.Empty(t, got.bad)
	require.Len(t, got.verdicts, 1)
	require.Equal(t, time.Unix(1, 0).UTC(), got.verdicts[0].Onset.UTC())
}

// TestAStormIsOneFault has the log of a storm: a fold as the receiver makes it.
func TestAStormIsOneFault(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it reads a long log")
	}
	var log strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&log, "[%d.%06d] %s\n", 1+i/10_000, i%10_000*100, xid79)
	}
	got := played(t, Options{}, map[string][]byte{"node-17.log": []byte(log.String())})
	require.Len(t, got.verdicts, 1)
	require.Equal(t, uint64(50_000), got.verdicts[0].Evidence[0].Count)
	require.LessOrEqual(t, got.Records, uint64(3))
}

// TestNoLineOfAKernelLogIsBelievedWithoutBounds gives lines of every length and
// hosts without number.
func TestNoLineOfAKernelLogIsBelievedWithoutBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it reads long logs")
	}
	var log strings.Builder
	for i := range mostHosts + 10 {
		fmt.Fprintf(&log, "2026-11-21T08:41:23+0000 host-%d kernel: %s\n", i, xid79)
	}
	got := played(t, Options{}, map[string][]byte{"x": []byte(log.String())})
	require.Contains(t, got.bad[0], "more than 1024 hosts")
	require.Len(t, got.verdicts, mostHosts)

	long := "[1.0] " + xid79 + strings.Repeat("x", 10*mostLine) + "\n[2.0] end"
	got = played(t, Options{}, map[string][]byte{"x": []byte(long)})
	require.Empty(t, got.bad)
	require.Len(t, got.verdicts, 1)
}

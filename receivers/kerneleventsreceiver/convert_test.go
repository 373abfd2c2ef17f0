package kerneleventsreceiver

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/fold"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "rewrite the golden records")

var testHost = record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"}

func newTestConverter() *converter {
	settings := receivertest.NewNopSettings(metadata.Type)
	return newConverter(metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), settings), testHost)
}

// driverOf is a function that writes lines which begin so.
var driverOf = map[string]kmsg.Function{
	"NVRM": {Name: "nv_printf", Module: "nvidia"}, "nvidia": {Name: "nvswitch_os_print", Module: "nvidia"}, "amdgpu": {Name: "amdgpu_ras_query", Module: "amdgpu"},
	"mlx5_core": {Name: "mlx5_port_module_event", Module: "mlx5_core"}, "pcieport": {Name: "aer_print_error"},
	"nfs": {Name: "rpc_check_timeout", Module: "sunrpc"}, "watchdog": {Name: "watchdog_timer_fn"},
}

// reportsOf parses lines a millisecond apart and closes every fold.
func reportsOf(t *testing.T, lines []string, writer kmsg.Writer) []fold.Report {
	meanings, err := catalogue.Load()
	require.NoError(t, err)
	parser := kernellog.NewParser(meanings)
	folder := fold.New(fold.Limits{Quiet: time.Second, Longest: 10 * time.Second, Open: 4096})
	var reports []fold.Report
	for i, line := range lines {
		at := start.Add(time.Duration(i) * time.Millisecond)
		event := kmsg.Event{Time: at, PID: 99, Comm: "writer", Writer: writer, Origin: driverOf[strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" :-", r) })[0]], Text: line, Truncated: true}
		faults, _ := parser.Parse(nil, &event)
		for _, fault := range faults {
			reports = folder.Add(reports, fault, at)
		}
	}
	return folder.Flush(reports)
}

func TestGoldenRecords(t *testing.T) {
	observed := start.Add(time.Minute)
	rank := identity.Process{
		PID: 42, ParentPID: 1, Comm: "python", ContainerID: "c0ffee", PodUID: "0f0e", Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "job-1",
	}
	for name, lines := range map[string][]string{
		"xid": {
			xid79,
			"NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 31, pid=43, name=worker, Ch 00000008",
			"NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
			"NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_EVT Fatal XC0 i1 Link 08 (0x025001c6 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)",
			"NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
		},
		"storm": {xid79, xid79, xid79, "NVRM: Xid (PCI:0000:65:00): 45, pid=42, name=python, Ch 1", "NVRM: Xid (PCI:0000:65:00): 45, pid=42, name=python, Ch 2"},
		"others": {
			"NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
			"nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
			"amdgpu 0000:01:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
			"amdgpu 0000:c3:00.0: amdgpu: GPU reset(5) succeeded!",
			"mlx5_core 0000:5e:00.0 ibs3: Port: 1 Link DOWN",
			"mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",
			"pcieport 0000:b0:02.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
			"nfs: server 10.0.0.9 not responding, still trying",
			"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:42]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reports := reportsOf(t, lines, kmsg.WriterKernel)
			for _, report := range reports {
				if report.OwnerPID == rank.PID {
					report.Owner = &rank
				}
			}
			got := newTestConverter().faults(reports, observed)
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, golden.WriteLogs(t, file, got))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, got))
		})
	}
}

func TestResourceLeavesOutWhatIsNotKnown(t *testing.T) {
	config := metadata.DefaultLogsBuilderConfig()
	settings := receivertest.NewNopSettings(metadata.Type)
	c := newConverter(metadata.NewLogsBuilder(config, settings), record.Host{Name: "node-1"})
	require.Equal(t, map[string]any{"host.name": "node-1"}, c.builder.Resource().Attributes().AsRaw())
	config.ResourceAttributes.HostName.Enabled = false
	c = newConverter(metadata.NewLogsBuilder(config, settings), testHost)
	require.NotContains(t, c.builder.Resource().Attributes().AsRaw(), "host.name")
}

func TestExitSaysHowManyRanksWereSpared(t *testing.T) {
	for name, tc := range map[string]struct {
		others      identity.Others
		want, alike any
	}{
		"none":                        {identity.Others{Lived: 3, Asked: 3}, int64(0), nil},
		"some":                        {identity.Others{Lived: 3, Asked: 1}, int64(2), nil},
		"by its wrapper, some alike":  {identity.Others{Lived: 3, Wrapped: true, Alike: 2}, int64(3), int64(2)},
		"by its wrapper, none alike":  {identity.Others{Lived: 3, Wrapped: true}, int64(3), int64(0)},
		"there are no others":         {identity.Others{}, nil, nil},
		"by its wrapper, none others": {identity.Others{Wrapped: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := identity.Exit{Process: identity.Process{PID: 42, Rank: 3}, Signal: 15, Others: tc.others}
			got := newTestConverter().exit(e, 0, start).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			require.Equal(t, tc.want, got.Attributes().AsRaw()["process.exit.spared_ranks"])
			require.Equal(t, tc.alike, got.Attributes().AsRaw()["process.exit.alike_ranks"])
		})
	}
}

func TestExitNamesTheWrapperThatPassedItOn(t *testing.T) {
	for name, tc := range map[string]struct {
		wrapper *identity.Wrapper
		text    string
		want    map[string]any
	}{
		"a shell": {
			&identity.Wrapper{PID: 12, Comm: "bash", Code: 139}, "python (pid 42, rank 3) was ended by SIGSEGV; bash (pid 12), which ran it, passed that on",
			map[string]any{"process.exit.wrapper.pid": int64(12), "process.exit.wrapper.name": "bash", "process.exit.wrapper.code": int64(139)},
		},
		"one that ends itself by the same signal": {
			&identity.Wrapper{PID: 12, Comm: "timeout", Signal: 11}, "python (pid 42, rank 3) was ended by SIGSEGV; timeout (pid 12), which ran it, passed that on",
			map[string]any{
				"process.exit.wrapper.pid": int64(12), "process.exit.wrapper.name": "timeout", "process.exit.wrapper.code": int64(0),
				"process.exit.wrapper.signal_name": "SIGSEGV",
			},
		},
		"one that had ended before": {
			&identity.Wrapper{PID: 12, Comm: "bash", Signal: 9, Outlived: true}, "python (pid 42, rank 3) was ended by SIGSEGV; bash (pid 12), which ran it, had ended before",
			map[string]any{
				"process.exit.wrapper.pid": int64(12), "process.exit.wrapper.name": "bash", "process.exit.wrapper.code": int64(0),
				"process.exit.wrapper.signal_name": "SIGKILL", "process.exit.wrapper.outlived": true,
			},
		},
		"none": {nil, "python (pid 42, rank 3) was ended by SIGSEGV", map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := identity.Exit{Process: identity.Process{PID: 42, Comm: "python", Rank: 3}, Signal: 11, Wrapper: tc.wrapper}
			got := newTestConverter().exit(e, 0, start).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			require.Equal(t, tc.text, got.Body().AsString())
			said := got.Attributes().AsRaw()
			maps.DeleteFunc(said, func(key string, _ any) bool { return !strings.HasPrefix(key, "process.exit.wrapper.") })
			require.Equal(t, tc.want, said)
		})
	}
}

func TestExitNamesTheChildThatCrashedBefore(t *testing.T) {
	itself := map[string]any{"process.exit.child.pid": int64(50), "process.exit.child.name": "pt_data_worker", "process.exit.child.signal_name": "SIGABRT"}
	for name, tc := range map[string]struct {
		child identity.Child
		text  string
		want  map[string]any
	}{
		"by itself": {identity.Child{Signal: 6, By: identity.Sender{Relation: identity.RelationItself, PID: 50, Comm: "pt_data_worker"}}, "was ended by SIGABRT", itself},
		"by nobody": {identity.Child{Signal: 6}, "was ended by SIGABRT", itself},
		"by what started the rank": {
			identity.Child{Signal: 9, By: identity.Sender{Relation: identity.RelationLauncher, PID: 7, Comm: "bash", UserID: 1000}}, "was ended by SIGKILL, sent by bash (pid 7) of user 1000",
			map[string]any{
				"process.exit.child.pid": int64(50), "process.exit.child.name": "pt_data_worker", "process.exit.child.signal_name": "SIGKILL",
				"process.exit.child.sender.pid": int64(7), "process.exit.child.sender.name": "bash", "process.exit.child.sender.user_id": int64(1000),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			child := tc.child
			child.PID, child.Comm = 50, "pt_data_worker"
			e := identity.Exit{Process: identity.Process{PID: 42, Comm: "python", Rank: 3}, Code: 1, Child: &child}
			got := newTestConverter().exit(e, 0, start).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			require.Equal(t, "python (pid 42, rank 3) exited with status 1, after its child pt_data_worker (pid 50) "+tc.text, got.Body().AsString())
			said := got.Attributes().AsRaw()
			maps.DeleteFunc(said, func(key string, _ any) bool { return !strings.HasPrefix(key, "process.exit.child.") })
			require.Equal(t, tc.want, said)
		})
	}
}

func TestExitSaysWhoSentTheSignal(t *testing.T) {
	at := start.Add(-time.Second)
	for name, tc := range map[string]struct {
		exit identity.Exit
		text string
		want map[string]any
	}{
		"killed by a process": {
			identity.Exit{Signal: 9, Signalled: identity.Signal{Number: 9, Time: at, Sender: identity.Sender{
				Relation: identity.RelationOther, PID: 812, ParentPID: 800, StartNS: 70_000_000, Comm: "kill", UserID: 1000, ContainerID: "c0ffee",
			}}},
			"python (pid 42, rank 3) was ended by SIGKILL; SIGKILL was sent by kill (pid 812) of user 1000",
			map[string]any{
				"signal.number": int64(9), "signal.name": "SIGKILL", "signal.code": "SI_USER", "signal.time_unix_nano": at.UnixNano(),
				"signal.sender.relation": "other", "signal.sender.pid": int64(812), "signal.sender.parent_pid": int64(800), "signal.sender.start_ns": int64(70_000_000),
				"signal.sender.name": "kill", "signal.sender.user_id": int64(1000), "signal.sender.container_id": "c0ffee",
			},
		},
		"asked by root to end, and ended by itself": {
			identity.Exit{Code: 1, Signalled: identity.Signal{Number: 15, Code: -1, Time: at, Sender: identity.Sender{
				Relation: identity.RelationScheduler, PID: 1, Comm: "systemd",
			}}},
			"python (pid 42, rank 3) exited with status 1; SIGTERM was sent by systemd (pid 1) of user 0",
			map[string]any{
				"signal.number": int64(15), "signal.name": "SIGTERM", "signal.code": "SI_QUEUE", "signal.time_unix_nano": at.UnixNano(),
				"signal.sender.relation": "scheduler", "signal.sender.pid": int64(1), "signal.sender.name": "systemd", "signal.sender.user_id": int64(0),
			},
		},
		"a fault": {
			identity.Exit{Signal: 7, Signalled: identity.Signal{Number: 7, Code: 4, Time: at, Sender: identity.Sender{Relation: identity.RelationKernel}}},
			"python (pid 42, rank 3) was ended by SIGBUS; SIGBUS was sent by the kernel",
			map[string]any{
				"signal.number": int64(7), "signal.name": "SIGBUS", "signal.code": "BUS_MCEERR_AR", "signal.time_unix_nano": at.UnixNano(),
				"signal.sender.relation": "kernel",
			},
		},
		"not known": {identity.Exit{Signal: 9}, "python (pid 42, rank 3) was ended by SIGKILL", map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.exit.Process = identity.Process{PID: 42, Comm: "python", Rank: 3}
			got := newTestConverter().exit(tc.exit, 0, start).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			require.Equal(t, tc.text, got.Body().AsString())
			signal := map[string]any{}
			for key, value := range got.Attributes().AsRaw() {
				if strings.HasPrefix(key, "signal.") {
					signal[key] = value
				}
			}
			require.Equal(t, tc.want, signal)
		})
	}
}

// TestEveryEventIsEmitted plays every line the parser is tested with.
func TestEveryEventIsEmitted(t *testing.T) {
	emitted := map[string]bool{metadata.EventProcessExit: true, metadata.EventProcessStart: true, metadata.EventProcessGone: true, metadata.EventProcessAsked: true, metadata.EventHostBoot: true, metadata.EventTracecoreLost: true, metadata.EventNetworkRdmaPort: true} // of no line
	for _, report := range reportsOf(t, everyLine(t), kmsg.WriterUserspace) {
		emitted[report.Key.Event] = true
	}
	for event, enabled := range createDefaultConfig().(*Config).Events.ByName() {
		require.True(t, emitted[event], "no line makes a %s", event)
		require.True(t, enabled, event)
	}
}

// everyLine returns the lines of the parser's own test.
func everyLine(t *testing.T) []string {
	text, err := os.ReadFile("internal/kernellog/testdata/lines.txt")
	require.NoError(t, err)
	var lines []string
	for line := range bytes.Lines(text) {
		if line := strings.TrimSpace(string(line)); line != "" && !strings.HasPrefix(line, "=>") && !strings.HasPrefix(line, "##") {
			lines = append(lines, line)
		}
	}
	return lines
}

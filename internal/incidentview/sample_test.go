package incidentview

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var began = time.Date(2026, 11, 22, 3, 12, 3, 0, time.UTC)

// recording is what the agents of a job write: one batch for each moment.
type recording struct{ batches []plog.Logs }

func (r *recording) add(at time.Duration, event, host, body string, attributes map[string]any) {
	var logs plog.Logs
	stamp := pcommon.NewTimestampFromTime(began.Add(at))
	if last := len(r.batches) - 1; last >= 0 && r.batches[last].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Timestamp() == stamp {
		logs = r.batches[last]
	} else {
		logs = plog.NewLogs()
		r.batches = append(r.batches, logs)
	}
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", host)
	resource.Resource().Attributes().PutStr("k8s.node.name", host)
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(stamp)
	record.SetSeverityNumber(plog.SeverityNumberWarn)
	record.Body().SetStr(body)
	if err := record.Attributes().FromRaw(attributes); err != nil {
		record.Attributes().PutStr("broken", err.Error())
	}
	record.Attributes().PutStr("tracecore.trust", "proven")
}

// checkpointStops is a job of that many ranks, eight on a node, one of which writes a
// checkpoint to a FUSE mount whose daemon has gone: its ring stands still, and ten minutes
// later the watchdogs end it.
func checkpointStops(ranks int) *recording {
	r := &recording{}
	culprit := ranks/2 + 5
	host := func(rank int) string { return fmt.Sprintf("node-%03d", rank/8) }
	identity := func(rank int, more map[string]any) map[string]any {
		all := map[string]any{
			"gen_ai.training.rank": rank, "gen_ai.training.job_id": "llm-70b", "gen_ai.training.world_size": ranks,
			"process.pid": 40000 + rank, "process.executable.name": "python3",
		}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	r.add(1200*time.Millisecond, "storage.error", host(culprit), "EXT4-fs error (device nvme0n1p2): reading directory lblock 0", map[string]any{})
	r.add(1310*time.Millisecond, "syslog.message", host(culprit), "juicefs: cache directory is full", map[string]any{"process.pid": 2211})
	stall := func(at time.Duration) {
		r.add(at, "fuse.stall", host(culprit), "", identity(culprit, map[string]any{
			"fuse.mount.point": "/ckpt", "fuse.mount.source": "JuiceFS:ckpt", "fuse.mount.type": "fuse.juicefs", "fuse.device": "0:52",
			"fuse.daemon.pid": 2211, "fuse.daemon.name": "juicefs", "fuse.daemon.state": "gone", "fuse.stall.kind": "request", "fuse.opcode": "FSYNC",
			"fuse.stall.age_ns": int64(at - 1400*time.Millisecond), "fuse.stall.answered": 0, "fuse.stall.waiters": 1, "fuse.stall.faults": 0,
			"fuse.stall.requests": 1, "fuse.stall.pids": []any{40000 + culprit}, "fuse.stall.ranks": []any{culprit}, "fuse.stall.id": "f1",
		}))
	}
	stall(2400 * time.Millisecond)
	for _, at := range []time.Duration{5300 * time.Millisecond, 300 * time.Second, 595 * time.Second} {
		for rank := range ranks {
			behind := time.Duration((rank-culprit+ranks)%ranks) * 500 * time.Microsecond
			r.ring(at, rank, ranks, at-1420*time.Millisecond-behind, rank == culprit, host(rank), identity)
		}
		stall(at + time.Second)
	}
	for rank := range ranks {
		r.add(4*time.Second, "process.stack", host(rank), "", identity(rank, stackOf(rank, culprit)))
	}
	for rank := range ranks {
		if rank != culprit {
			at := 607*time.Second + 4100*time.Millisecond*time.Duration(rank)/time.Duration(ranks)
			r.add(at, "process.exit", host(rank), "", identity(rank, map[string]any{
				"process.exit.code": 0, "process.exit.signal": 6, "process.exit.signal_name": "SIGABRT", "process.exit.inherited_identity": false,
			}))
		}
	}
	return r
}

// stackOf is where a rank stands: the culprit in the write of its checkpoint, rank 1 nobody
// could read, all others in the collective.
func stackOf(rank, culprit int) map[string]any {
	frame := func(function, file string, line int) any {
		return map[string]any{"code.function.name": function, "code.file.path": file, "code.line.number": line}
	}
	switch rank {
	case 1:
		return map[string]any{"process.stack.unread": []any{"python: a page was not resident"}, "process.stack.hash": "", "process.stack.state": "S"}
	case culprit:
		return map[string]any{
			"process.stack.hash": "c0ffee", "process.stack.wait_class": "storage", "process.stack.state": "D",
			"process.stack.kernel_function": "request_wait_answer", "process.stack.kernel_owner": "fuse", "process.stack.native": []any{"fsync in libc.so.6"},
			"process.stack.frames": []any{frame("save_checkpoint", "/srv/train/train.py", 120), frame("main", "/srv/train/train.py", 139), frame("<module>", "/srv/train/train.py", 152)},
			"code.function.name":   "save_checkpoint", "code.line.number": 120,
		}
	}
	all := map[string]any{
		"process.stack.hash": "beef", "process.stack.wait_class": "collective", "process.stack.state": "S",
		"process.stack.kernel_function": "futex_wait_queue", "process.stack.kernel_owner": "futex", "code.function.name": "train_step", "code.line.number": 88,
	}
	if rank == 0 { // the frames are told once for each hash of a job
		all["process.stack.native"] = []any{"pthread_cond_wait in libc.so.6", "c10d::Work::wait(long, bool) in libtorch_cpu.so"}
		all["process.stack.frames"] = []any{
			frame("all_reduce", "/usr/lib/python3/distributed_c10d.py", 3913), frame("train_step", "/srv/train/train.py", 88),
			frame("main", "/srv/train/train.py", 141), frame("<module>", "/srv/train/train.py", 152),
		}
	}
	return all
}

// ring is what a rank's two sockets of a ring say while nothing moves.
func (r *recording) ring(at time.Duration, rank, ranks int, idle time.Duration, stuck bool, host string, identity func(int, map[string]any) map[string]any) {
	address := func(rank int) string { return fmt.Sprintf("10.%d.0.%d", rank/250, rank%250+1) }
	state := "sleeping"
	if stuck {
		state = "disk_sleep"
	}
	for _, direction := range []string{"send", "receive"} {
		port, peerPort, peer, last := 40000, 50000, (rank+1)%ranks, "nccl.socket.last_sent_age_ns"
		if direction == "receive" {
			port, peerPort, peer, last = peerPort, port, (rank+ranks-1)%ranks, "nccl.socket.last_received_age_ns"
		}
		r.add(at, "nccl.socket.stall", host, "", identity(rank, map[string]any{
			"nccl.socket.cause": "waiting", "nccl.socket.direction": direction, "nccl.socket.kind": "data",
			"nccl.socket.stall.id": fmt.Sprintf("s-%d-%s", rank, direction), "nccl.socket.stall.age_ns": int64(idle),
			"network.local.address": address(rank), "network.local.port": port, "network.peer.address": address(peer), "network.peer.port": peerPort,
			"nccl.rank.state": state, "nccl.rank.last_sent_age_ns": int64(idle), "nccl.rank.last_received_age_ns": int64(idle),
			"nccl.rank.main_thread_cpu_share": 0.0, last: int64(idle),
		}))
	}
}

// verdicts are the newest revisions of what the patterns say.
func (r *recording) verdicts(t testing.TB) []verdict.Verdict {
	t.Helper()
	rules, err := patterns.Library()
	require.NoError(t, err)
	e, err := engine.New(rules, engine.Options{Lateness: 15 * time.Second})
	require.NoError(t, err)
	newest := map[string]verdict.Verdict{}
	take := func() {
		for _, v := range e.Verdicts() {
			newest[v.ID] = v
		}
	}
	var last time.Time
	for _, logs := range r.batches {
		last = logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Timestamp().AsTime()
		e.Advance(last)
		e.Logs(logs)
		take()
	}
	for range 20 {
		last = last.Add(time.Second)
		e.Advance(last)
		take()
	}
	var all []verdict.Verdict
	for _, v := range newest {
		all = append(all, v)
	}
	return all
}

// view is the largest incident of a recording, with its records.
func (r *recording) view(t testing.TB) View {
	t.Helper()
	return r.build(r.largest(t))
}

func (r *recording) build(incident []verdict.Verdict) View {
	records := NewRecords(incident)
	for _, logs := range r.batches {
		records.Logs(logs)
	}
	feeds := records.Feeds(func(source string) []string {
		return map[string][]string{
			"fuse.stall": {"fusefault"}, "fuse.stall.end": {"fusefault"}, "nccl.collective.incomplete": {"rankjoin"}, "nccl.socket.stall": {"ncclsock"},
		}[source]
	}, func(string, string) time.Time { return time.Time{} }, heartbeat.NewBook(began), began.Add(20*time.Minute))
	return Build(incident, Options{Now: began.Add(20 * time.Minute), Version: "test", Records: records, Feeds: feeds})
}

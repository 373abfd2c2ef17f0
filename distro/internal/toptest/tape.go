// Package toptest has recordings of jobs of any size for tests of `tracecore top`, and a terminal
// to show it in.
package toptest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// StackEvent is where a rank stands.
const StackEvent = "process.stack"

// Began is when recordings begin.
var Began = time.Date(2026, 11, 22, 3, 12, 3, 0, time.UTC)

// Tape is what agents write: a batch for each moment.
type Tape struct {
	Batches []plog.Logs
	last    time.Duration
}

func (r *Tape) add(at time.Duration, event, host string, attributes map[string]any) {
	var logs plog.Logs
	if n := len(r.Batches); n > 0 && at == r.last {
		logs = r.Batches[n-1]
	} else {
		logs = plog.NewLogs()
		r.Batches, r.last = append(r.Batches, logs), at
	}
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", host)
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(Began.Add(at)))
	record.SetSeverityNumber(plog.SeverityNumberWarn)
	if err := record.Attributes().FromRaw(attributes); err != nil {
		record.Attributes().PutStr("broken", err.Error())
	}
	record.Attributes().PutStr("tracecore.trust", "proven")
}

// training is a job with eight ranks on a node.
type training struct {
	*Tape
	name  string
	ranks int
	first int // node
}

func (j *training) host(rank int) string { return fmt.Sprintf("node-%03d", j.first+rank/8) }

func (j *training) identity(rank int, more map[string]any) map[string]any {
	all := map[string]any{
		"gen_ai.training.rank": rank, "gen_ai.training.job_id": j.name, "gen_ai.training.world_size": j.ranks, "gen_ai.training.local_rank": rank % 8,
		"process.pid": 40000 + rank, "process.executable.name": "python3",
		"gen_ai.training.rank_pid": 40000 + rank, "gen_ai.training.rank_start_unix_nano": Began.Add(-33 * time.Hour).UnixNano(),
	}
	for key, value := range more {
		all[key] = value
	}
	return all
}

// begin has all ranks begin, as their agents tell when they start.
func (j *training) begin() {
	for rank := range j.ranks {
		j.add(0, "process.start", j.host(rank), j.identity(rank, nil))
	}
}

// Checkpoint is a job of so many ranks, one of which writes a checkpoint to a mount whose
// daemon has gone: all others wait for it.
func Checkpoint(ranks int) *Tape {
	r := &Tape{}
	j := &training{r, "llm-70b", ranks, 0}
	small := &training{r, "eval-nightly", 8, (ranks + 7) / 8}
	j.begin()
	small.begin()
	culprit := ranks/2 + 5
	if ranks == 8 {
		culprit = 5
	}
	r.add(1310*time.Millisecond, "oom.kill", j.host(culprit), map[string]any{
		"process.pid": 2211, "process.executable.name": "juicefs", "oomkill.cgroup": "/system.slice/juicefs.service", "oomkill.constraint": "memcg", "oomkill.limit_bytes": 8 << 30,
	})
	stall := func(at time.Duration) {
		r.add(at, "fuse.stall", j.host(culprit), j.identity(culprit, map[string]any{
			"fuse.mount.point": "/ckpt", "fuse.mount.source": "JuiceFS:ckpt", "fuse.mount.type": "fuse.juicefs", "fuse.device": "0:52",
			"fuse.daemon.pid": 2211, "fuse.daemon.name": "juicefs", "fuse.daemon.state": "gone", "fuse.stall.kind": "request", "fuse.opcode": "FSYNC",
			"fuse.stall.age_ns": int64(at - 1400*time.Millisecond), "fuse.stall.answered": 0, "fuse.stall.waiters": 1, "fuse.stall.faults": 0,
			"fuse.stall.requests": 1, "fuse.stall.pids": []any{40000 + culprit}, "fuse.stall.ranks": []any{culprit}, "fuse.stall.id": "f1",
		}))
	}
	stall(2400 * time.Millisecond)
	for rank := range ranks {
		r.add(4*time.Second, StackEvent, j.host(rank), j.identity(rank, stackOf(rank, culprit)))
	}
	rounds := []time.Duration{5300 * time.Millisecond, 75 * time.Second, 139 * time.Second}
	if ranks > 4096 {
		rounds = rounds[:1]
	}
	for _, at := range rounds {
		for rank := range ranks {
			j.ring(at, rank, culprit)
		}
		stall(at + 10*time.Millisecond)
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
			"process.stack.hash": "c0ffee", "process.stack.wait_class": "storage", "process.stack.state": "D", "process.stack.where": "train.py:120 in save_checkpoint < main",
			"process.stack.kernel_function": "request_wait_answer", "process.stack.kernel_owner": "fuse", "process.stack.native": []any{"fsync in libc.so.6"},
			"process.stack.frames": []any{frame("save_checkpoint", "/srv/train/train.py", 120), frame("main", "/srv/train/train.py", 139), frame("<module>", "/srv/train/train.py", 152)},
			"code.function.name":   "save_checkpoint", "code.line.number": 120,
		}
	}
	all := map[string]any{
		"process.stack.hash": "beef", "process.stack.wait_class": "collective", "process.stack.state": "S", "process.stack.where": "train.py:88 in train_step < main",
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
func (j *training) ring(at time.Duration, rank, culprit int) {
	idle := at - 1420*time.Millisecond - time.Duration((rank-culprit+j.ranks)%j.ranks)*time.Second/time.Duration(2*j.ranks)
	address := func(rank int) string { return fmt.Sprintf("10.%d.%d.%d", rank/62500, rank/250%250, rank%250+1) }
	state, call := "sleeping", "futex"
	if rank == culprit {
		state, call = "disk_sleep", "fsync"
	}
	for _, direction := range []string{"send", "receive"} {
		port, peerPort, peer, last := 40000, 50000, (rank+1)%j.ranks, "nccl.socket.last_sent_age_ns"
		if direction == "receive" {
			port, peerPort, peer, last = peerPort, port, (rank+j.ranks-1)%j.ranks, "nccl.socket.last_received_age_ns"
		}
		j.add(at, "nccl.socket.stall", j.host(rank), j.identity(rank, map[string]any{
			"nccl.socket.cause": "waiting", "nccl.socket.direction": direction, "nccl.socket.kind": "data",
			"nccl.socket.stall.id": fmt.Sprintf("s-%d-%s", rank, direction), "nccl.socket.stall.age_ns": int64(idle),
			"network.local.address": address(rank), "network.local.port": port, "network.peer.address": address(peer), "network.peer.port": peerPort,
			"nccl.rank.state": state, "nccl.rank.last_sent_age_ns": int64(idle), "nccl.rank.last_received_age_ns": int64(idle),
			"nccl.rank.main_thread_cpu_share": 0.0, last: int64(idle), "nccl.rank.syscall": call,
		}))
	}
}

// Healthy is two jobs that go on.
func Healthy(ranks int) *Tape {
	r := &Tape{}
	(&training{r, "llm-70b", ranks, 0}).begin()
	(&training{r, "eval-nightly", 8, (ranks + 7) / 8}).begin()
	return r
}

// File writes the tape as a recording that tracecore reads: a message of OTLP in JSON on a line.
func (r *Tape) File(tb testing.TB) string {
	tb.Helper()
	var all bytes.Buffer
	for _, logs := range r.Batches {
		text, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
		require.NoError(tb, err)
		all.Write(append(text, '\n'))
	}
	path := filepath.Join(tb.TempDir(), "recording.jsonl")
	require.NoError(tb, os.WriteFile(path, all.Bytes(), 0o600))
	return path
}

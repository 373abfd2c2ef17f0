package rankjoinprocessor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/metadata"
)

var (
	began     = time.Date(2026, 11, 21, 5, 10, 0, 0, time.UTC)
	storageID = component.MustNewID("file_storage")
)

const missing = "rank 2 never entered all_reduce #6 of default_pg; ranks 0-1, 3 wait at ar (/srv/train/train.py:8)"

// realDumps are the records of the ncclfr receiver's real dumps.
func realDumps(t *testing.T, set string) plog.Logs {
	data, err := os.ReadFile(filepath.Join("../../receivers/ncclfrreceiver/testdata/golden", set+".otlp.json"))
	require.NoError(t, err)
	logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(data)
	require.NoError(t, err)
	return logs
}

// downstream keeps what it is given; it refuses findings with err while that is
// set.
type downstream struct {
	mu       sync.Mutex
	err      error
	findings []plog.LogRecord
	resource []string // host.name of each finding
	passed   []plog.LogRecord
}

func (*downstream) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (d *downstream) ConsumeLogs(_ context.Context, logs plog.Logs) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, resource := range logs.ResourceLogs().All() {
		for _, r := range resource.ScopeLogs().At(0).LogRecords().All() {
			kept := plog.NewLogRecord()
			r.CopyTo(kept)
			if name := r.EventName(); name == "nccl.fr.dump" || name == "nccl.socket.stall" {
				d.passed = append(d.passed, kept)
				continue
			}
			if d.err != nil {
				return d.err
			}
			host := textOf(resource.Resource().Attributes(), "host.name")
			d.findings, d.resource = append(d.findings, kept), append(d.resource, host)
		}
	}
	return nil
}

func (d *downstream) refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// newest is the record that came last.
func (d *downstream) newest() plog.LogRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.findings[len(d.findings)-1]
}

func (d *downstream) said() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	said := []string{}
	for _, r := range d.findings {
		said = append(said, r.Body().Str())
	}
	return said
}

// rig is a processor whose clock the test moves.
type rig struct {
	processor *rankJoin
	next      *downstream
	mu        sync.Mutex
	now       time.Time
	ticks     chan time.Time
}

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

func newRig(t *testing.T, config *Config, h host) *rig {
	r := &rig{next: &downstream{}, now: began, ticks: make(chan time.Time)}
	set := processortest.NewNopSettings(metadata.Type)
	set.ID = component.NewID(metadata.Type)
	p, err := newProcessor(set, config, r.next, clock{
		now: func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.now
		},
		ticks: func() (<-chan time.Time, func()) { return r.ticks, func() {} },
	})
	require.NoError(t, err)
	r.processor = p
	require.NoError(t, p.Start(t.Context(), h))
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return r
}

func newConfig() *Config { return createDefaultConfig().(*Config) }

// pass lets time pass; when the second tick is taken, the work of the first is
// done.
func (r *rig) pass(by time.Duration) {
	r.mu.Lock()
	r.now = r.now.Add(by)
	r.mu.Unlock()
	r.ticks <- r.now
	r.ticks <- r.now
}

func (r *rig) send(t *testing.T, logs plog.Logs) {
	require.NoError(t, r.processor.ConsumeLogs(t.Context(), logs))
}

func TestDumpsOfAJobBecomeAFinding(t *testing.T) {
	r := newRig(t, newConfig(), host{})
	r.send(t, realDumps(t, "missing"))
	r.pass(4 * time.Second)
	require.Empty(t, r.next.said(), "the window is open")
	r.pass(time.Second)
	r.pass(time.Minute)
	require.Equal(t, []string{missing}, r.next.said(), "once")
	require.Len(t, r.next.passed, 4, "dumps pass through")

	finding := r.next.findings[0]
	require.Equal(t, "nccl.collective.incomplete", finding.EventName())
	require.Equal(t, plog.SeverityNumberError, finding.SeverityNumber())
	require.Equal(t, began.Add(5*time.Second), finding.Timestamp().AsTime())
	since, _ := finding.Attributes().AsRaw()["nccl.collective.since_unix_nano"].(int64)
	require.Equal(t, map[string]any{
		"nccl.collective.edges":   fmt.Sprintf("0-1,3>rank 2|all_reduce #6@%d", time.Unix(0, since).UnixMilli()),
		"nccl.collective.finding": "not_entered", "nccl.collective.sureness": "certain", "nccl.collective.run": "/fr/rank_",
		"nccl.collective.id": finding.Attributes().AsRaw()["nccl.collective.id"], "nccl.collective.operation": "all_reduce", "nccl.collective.p2p": false,
		"nccl.fr.collective_seq_id": int64(6), "nccl.fr.pg_id": "0", "nccl.fr.pg_desc": "default_pg", "nccl.collective.group": "default_pg",
		"nccl.collective.members": int64(4), "nccl.collective.downstream": int64(0), "nccl.collective.behind": int64(1),
		"nccl.collective.waiting_ranks": []any{int64(0), int64(1), int64(3)}, "nccl.collective.culprit_ranks": []any{int64(2)},
		"nccl.collective.affected_ranks": []any{int64(0), int64(1), int64(2), int64(3)},
		"nccl.collective.line":           "ar (/srv/train/train.py:8)", "nccl.collective.code": []any{"ar (/srv/train/train.py:8)", "<module> (/srv/train/train.py:13)"},
		"nccl.collective.last_line": "ar (/srv/train/train.py:8)", "nccl.collective.last_code": []any{"ar (/srv/train/train.py:8)", "<module> (/srv/train/train.py:9)"},
		"nccl.collective.since_unix_nano": since, "nccl.collective.waited_ns": int64(20 * time.Second),
		"gen_ai.training.rank": int64(2), "gen_ai.training.world_size": int64(4), "tracecore.trust": "claimed",
	}, finding.Attributes().AsRaw())
}

func TestTheFindingHasTheHostOfItsCulprit(t *testing.T) {
	r := newRig(t, newConfig(), host{})
	logs := realDumps(t, "missing")
	for _, resource := range logs.ResourceLogs().All() {
		rank, _ := resource.ScopeLogs().At(0).LogRecords().At(0).Attributes().Get("nccl.fr.rank")
		resource.Resource().Attributes().PutStr("host.name", "node-"+rank.AsString())
		for key, value := range podOf(rank.AsString()) {
			resource.ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr(key, value)
		}
	}
	r.send(t, logs)
	r.pass(5 * time.Second)
	require.Equal(t, []string{"node-2"}, r.next.resource)
	for key, value := range podOf("2") {
		require.Equal(t, value, textOf(r.next.findings[0].Attributes(), key), key)
	}
}

// podOf is what a record says of the pod of a rank.
func podOf(rank string) map[string]string {
	return map[string]string{
		"k8s.pod.uid": "uid-" + rank, "k8s.namespace.name": "training", "k8s.pod.name": "llama-worker-" + rank, "k8s.workload": "statefulset/llama-worker",
	}
}

// stallOf is a stall record of a rank of the job of realDumps, in which the queues
// of all ranks but the stopped one are empty.
func stallOf(to plog.ResourceLogs, rank int, cause, state string) {
	to.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank))
	r := to.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName("nccl.socket.stall")
	a := r.Attributes()
	a.PutInt("gen_ai.training.rank", int64(rank))
	a.PutStr("gen_ai.training.job_id", "llm")
	a.PutInt("process.pid", int64(100+rank))
	a.PutStr("nccl.socket.cause", cause)
	a.PutStr("nccl.socket.direction", "receive")
	a.PutStr("nccl.rank.state", state)
}

// TestASocketNamesTheRankWithoutADump: rank 2 sent no dump, its process is stopped.
// Without its sockets nobody could be named.
func TestASocketNamesTheRankWithoutADump(t *testing.T) {
	r := newRig(t, newConfig(), host{})
	dumps := realDumps(t, "missing")
	var wrote pcommon.Timestamp
	dumps.ResourceLogs().RemoveIf(func(resource plog.ResourceLogs) bool {
		one := resource.ScopeLogs().At(0).LogRecords().At(0)
		one.Attributes().PutStr("gen_ai.training.job_id", "llm")
		one.Attributes().PutInt("gen_ai.training.world_size", 4)
		wrote = one.Timestamp()
		rank, _ := one.Attributes().Get("nccl.fr.rank")
		return rank.Int() == 2
	})
	stalls := plog.NewLogs()
	for rank, state := range []string{"sleeping", "sleeping", "stopped", "sleeping"} {
		resource := stalls.ResourceLogs().AppendEmpty()
		stallOf(resource, rank, "waiting", state)
		resource.ScopeLogs().At(0).LogRecords().At(0).SetTimestamp(wrote - pcommon.Timestamp(5*time.Second))
	}
	r.send(t, dumps)
	r.send(t, stalls)
	r.pass(5 * time.Second)
	require.Len(t, r.next.passed, 7, "dumps and stalls pass through")
	require.Equal(t, []string{"node-2"}, r.next.resource)
	said := r.next.findings[0].Attributes().AsRaw()
	for key, want := range map[string]any{
		"nccl.collective.finding": "no_dump", "nccl.collective.sureness": "likely", "nccl.collective.sockets": "agree",
		"nccl.collective.sockets_detail": "rank 2: its process is stopped; rank 2 sent no dump, but lives: its sockets are seen",
		"nccl.collective.held_ranks":     []any{int64(2)}, "nccl.collective.alive_ranks": []any{int64(2)},
		"gen_ai.training.rank": int64(2), "process.pid": int64(102),
	} {
		require.Equal(t, want, said[key], key)
	}
}

func TestOtherRecordsPassUntouched(t *testing.T) {
	sink := &consumertest.LogsSink{}
	p, err := newProcessor(processortest.NewNopSettings(metadata.Type), newConfig(), sink, clock{now: time.Now, ticks: often})
	require.NoError(t, err)
	logs := plog.NewLogs()
	r := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName("oom.kill")
	r.Attributes().PutInt("nccl.fr.rank", 7)
	want := plog.NewLogs()
	logs.CopyTo(want)
	require.NoError(t, p.ConsumeLogs(t.Context(), logs))
	require.Equal(t, want, sink.AllLogs()[0])
	require.NoError(t, p.Shutdown(t.Context()))
}

func TestAFindingThatIsRefusedIsSentAgain(t *testing.T) {
	r := newRig(t, newConfig(), host{})
	r.next.refuse(errors.New("queue is full"))
	r.send(t, realDumps(t, "missing"))
	r.pass(5 * time.Second)
	require.Empty(t, r.next.said())
	r.next.refuse(nil)
	r.pass(time.Second)
	r.pass(time.Second)
	require.Equal(t, []string{missing}, r.next.said())

	r.next.refuse(consumererror.NewPermanent(errors.New("no")))
	r.send(t, realDumps(t, "mismatched_operation"))
	r.pass(5 * time.Second)
	r.next.refuse(nil)
	r.pass(time.Second)
	require.Len(t, r.next.said(), 1, "refused for good")
}

func TestAGroupThatGoesOnIsTold(t *testing.T) {
	r := newRig(t, newConfig(), host{})
	r.send(t, realDumps(t, "missing"))
	r.pass(5 * time.Second)
	later := realDumps(t, "healthy")
	for _, resource := range later.ResourceLogs().All() {
		a := resource.ScopeLogs().At(0).LogRecords().At(0).Attributes()
		newest, _ := a.Get("nccl.fr.newest_unix_nano")
		newest.SetInt(newest.Int() + int64(time.Hour))
	}
	r.send(t, later)
	r.pass(5 * time.Second)
	require.Len(t, r.next.findings, 2)
	require.Equal(t, "nccl.collective.complete", r.next.findings[1].EventName())
	require.Equal(t, map[string]any{"nccl.collective.run": "/fr/rank_", "nccl.fr.pg_id": "0", "nccl.fr.pg_desc": "default_pg", "tracecore.trust": "claimed"}, r.next.findings[1].Attributes().AsRaw())
}

// TestShutdownTellsWhatItKnows: a job does not stop hanging because we stop.
func TestShutdownTellsWhatItKnows(t *testing.T) {
	r := newRig(t, newConfig(), host{})
	r.send(t, realDumps(t, "missing"))
	require.NoError(t, r.processor.Shutdown(t.Context()))
	require.Equal(t, []string{missing}, r.next.said())
}

// TestACrashWithinTheWindowLosesNothing: the second processor finds in the
// storage what the first had not joined, the third finds nothing.
func TestACrashWithinTheWindowLosesNothing(t *testing.T) {
	dir, config := t.TempDir(), newConfig()
	config.Storage = &storageID
	files := fileStorage(t, dir)
	crashed := newRig(t, config, host{storageID: files})
	crashed.send(t, realDumps(t, "missing"))
	crashed.next.refuse(errors.New("gone")) // what Shutdown still says arrives nowhere
	require.NoError(t, crashed.processor.Shutdown(t.Context()))
	require.Empty(t, crashed.next.said())
	require.NoError(t, files.Shutdown(t.Context()))

	files = fileStorage(t, dir)
	second := newRig(t, config, host{storageID: files})
	second.pass(5 * time.Second)
	require.Equal(t, []string{missing}, second.next.said())
	require.NoError(t, second.processor.Shutdown(t.Context()))
	require.NoError(t, files.Shutdown(t.Context()))

	files = fileStorage(t, dir)
	third := newRig(t, config, host{storageID: files})
	third.pass(5 * time.Second)
	require.Empty(t, third.next.said())
	require.NoError(t, third.processor.Shutdown(t.Context()))
	require.NoError(t, files.Shutdown(t.Context()))
}

// memory is a storage extension in memory.
type memory struct {
	component.StartFunc
	component.ShutdownFunc
	mu     sync.Mutex
	values map[string][]byte
	broken error
}

func (m *memory) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return m, nil
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) { return m.values[key], m.broken }

func (m *memory) Set(ctx context.Context, key string, value []byte) error {
	return m.Batch(ctx, storage.SetOperation(key, value))
}

func (m *memory) Delete(ctx context.Context, key string) error {
	return m.Batch(ctx, storage.DeleteOperation(key))
}

func (m *memory) Walk(ctx context.Context, fn storage.WalkFunc) error {
	var all []*storage.Operation
	for key, value := range m.values {
		ops, err := fn(key, value)
		if err != nil {
			return err
		}
		all = append(all, ops...)
	}
	return m.Batch(ctx, all...)
}

func (m *memory) Batch(_ context.Context, ops ...*storage.Operation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			op.Value = m.values[op.Key]
		case storage.Set:
			m.values[op.Key] = op.Value
		case storage.Delete:
			delete(m.values, op.Key)
		}
	}
	return m.broken
}

func (*memory) Close(context.Context) error { return nil }

// crashed is what a process leaves that was killed now.
func (m *memory) crashed() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{values: maps.Clone(m.values)}
}

// TestAKilledProcessLosesNothing: killed within the window, after the finding was
// found and refused, and after it was taken.
func TestAKilledProcessLosesNothing(t *testing.T) {
	config, kept := newConfig(), &memory{values: map[string][]byte{}}
	config.Storage = &storageID
	first := newRig(t, config, host{storageID: kept})
	first.next.refuse(errors.New("queue is full"))
	first.send(t, realDumps(t, "missing"))
	inWindow := kept.crashed()
	first.pass(5 * time.Second)
	refused := kept.crashed()
	first.next.refuse(nil)
	first.pass(time.Second)
	require.Equal(t, []string{missing}, first.next.said())
	taken := kept.crashed()

	second := newRig(t, config, host{storageID: inWindow})
	second.pass(5 * time.Second)
	require.Equal(t, []string{missing}, second.next.said(), "joined after the restart")

	third := newRig(t, config, host{storageID: refused})
	third.pass(time.Minute)
	require.Equal(t, []string{missing}, third.next.said(), "delivered after the restart, once")

	fourth := newRig(t, config, host{storageID: taken})
	fourth.pass(time.Minute)
	require.Empty(t, fourth.next.said(), "not said again")
}

// stackOf is what an agent says of the stack of a rank.
func stackOf(event string, at time.Time, rank int, more map[string]any) plog.Logs {
	logs := plog.NewLogs()
	to := logs.ResourceLogs().AppendEmpty()
	to.Resource().Attributes().PutStr("host.name", "node-0")
	r := to.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName(event)
	r.SetTimestamp(pcommon.NewTimestampFromTime(at))
	a := r.Attributes()
	_ = a.FromRaw(more) // only such types are given
	a.PutStr("tracecore.trust", "claimed")
	a.PutStr("gen_ai.training.job_id", "llm")
	a.PutStr("gen_ai.training.job_domain", "user 0")
	a.PutInt("gen_ai.training.world_size", 3)
	a.PutInt("gen_ai.training.rank", int64(rank))
	a.PutInt("process.pid", int64(100+rank))
	a.PutInt("process.start_ns", 1e9)
	return logs
}

// TestAStopThatWasHeldBackIsTakenBackAfterAKill: sockets are waited for, so that the stop is told two seconds after it
// was seen. In the time between nothing comes, and yet that time has to be known after a crash.
func TestAStopThatWasHeldBackIsTakenBackAfterAKill(t *testing.T) {
	config, kept := newConfig(), &memory{values: map[string][]byte{}}
	config.Storage = &storageID
	first := newRig(t, config, host{storageID: kept})
	first.send(t, stackOf("nccl.socket.watched", began, 0, nil))
	for rank, state := range []string{"stopped", "sleeping", "sleeping"} {
		first.send(t, stackOf("process.stack", began, rank, map[string]any{
			"process.stack.hash": "a39cd80c6494ac94", "process.stack.reason": "asleep", "process.stack.still_ns": int64(2e9), "process.stack.wait_class": "collective",
			"nccl.rank.state": state, "nccl.rank.activity": "idle", "nccl.rank.silence": "overdue", "nccl.rank.rest_ns": int64(3e9),
		}))
	}
	for range 3 {
		first.pass(time.Second)
	}
	require.Equal(t, "nccl.collective.incomplete", first.next.newest().EventName())
	told := first.next.newest().Attributes().AsRaw()
	require.Equal(t, []any{int64(0)}, told["nccl.collective.culprit_ranks"])

	second := newRig(t, config, host{storageID: kept.crashed()})
	second.pass(4 * time.Second)
	for rank := range 3 {
		second.send(t, stackOf("process.stack.moving", began.Add(4*time.Second), rank, nil))
	}
	second.pass(2 * time.Second)
	require.Equal(t, "nccl.collective.complete", second.next.newest().EventName())
	require.Equal(t, told["nccl.collective.stop"], second.next.newest().Attributes().AsRaw()["nccl.collective.stop"])
}

// TestALateDumpAfterARestart completes what was said before it.
func TestALateDumpAfterARestart(t *testing.T) {
	config, kept := newConfig(), &memory{values: map[string][]byte{}}
	config.Storage = &storageID
	without, late := realDumps(t, "missing"), realDumps(t, "missing")
	isLate := func(resource plog.ResourceLogs) bool {
		rank, _ := resource.ScopeLogs().At(0).LogRecords().At(0).Attributes().Get("nccl.fr.rank")
		return rank.Int() == 2
	}
	without.ResourceLogs().RemoveIf(isLate)
	late.ResourceLogs().RemoveIf(func(r plog.ResourceLogs) bool { return !isLate(r) })
	first := newRig(t, config, host{storageID: kept})
	first.send(t, without)
	require.NoError(t, first.processor.Shutdown(t.Context()))
	require.Len(t, first.next.findings, 1)

	second := newRig(t, config, host{storageID: kept.crashed()})
	second.send(t, late)
	second.pass(5 * time.Second)
	require.Equal(t, []string{missing}, second.next.said())
	id := func(r *rig) any { return r.next.findings[0].Attributes().AsRaw()["nccl.collective.id"] }
	require.Equal(t, id(first), id(second))
}

// TestDamagedStorageIsForgotten: whatever stands there, the processor works.
func TestDamagedStorageIsForgotten(t *testing.T) {
	config, kept := newConfig(), &memory{values: map[string][]byte{}}
	config.Storage = &storageID
	first := newRig(t, config, host{storageID: kept})
	first.next.refuse(errors.New("queue is full"))
	first.send(t, realDumps(t, "missing"))
	first.pass(5 * time.Second)
	first.send(t, realDumps(t, "subgroup"))
	journaled := kept.crashed()
	require.NoError(t, first.processor.Shutdown(t.Context()))
	for name, left := range map[string]*memory{"journal": journaled, "snapshot": kept.crashed()} {
		for damaged := range left.values {
			t.Run(name+" "+damaged, func(t *testing.T) {
				hit := left.crashed()
				hit.values[damaged] = []byte("not ours")
				r := newRig(t, config, host{storageID: hit})
				r.send(t, realDumps(t, "mismatched_operation"))
				r.pass(time.Minute)
				require.NotEmpty(t, r.next.said())
				again := newRig(t, config, host{storageID: hit.crashed()})
				again.pass(time.Minute)
				require.Empty(t, again.next.said(), "a snapshot has replaced what was damaged")
			})
		}
	}
}

// TestStorageThatRefuses holds nobody up.
func TestStorageThatRefuses(t *testing.T) {
	config, kept := newConfig(), &memory{values: map[string][]byte{}}
	config.Storage = &storageID
	r := newRig(t, config, host{storageID: kept})
	kept.mu.Lock()
	kept.broken = errors.New("disk is full")
	kept.mu.Unlock()
	r.send(t, realDumps(t, "missing"))
	r.pass(5 * time.Second)
	require.Equal(t, []string{missing}, r.next.said())
	kept.mu.Lock()
	kept.broken = nil
	kept.mu.Unlock()
	r.pass(time.Second)
	after := newRig(t, config, host{storageID: kept.crashed()})
	after.pass(time.Minute)
	require.Empty(t, after.next.said(), "the snapshot knows that it was said")
}

func fileStorage(t *testing.T, dir string) component.Component {
	factory := filestorageextension.NewFactory()
	config := factory.CreateDefaultConfig().(*filestorageextension.Config)
	config.Directory = dir
	made, err := factory.Create(context.Background(), extensiontest.NewNopSettings(factory.Type()), config)
	require.NoError(t, err)
	require.NoError(t, made.Start(context.Background(), componenttest.NewNopHost()))
	return made
}

func TestStorageThatIsNotThere(t *testing.T) {
	config := newConfig()
	config.Storage = &storageID
	p, err := newProcessor(processortest.NewNopSettings(metadata.Type), config, consumertest.NewNop(), clock{now: time.Now, ticks: often})
	require.NoError(t, err)
	require.ErrorContains(t, p.Start(t.Context(), componenttest.NewNopHost()), `storage "file_storage" is not there`)
	require.NoError(t, p.Shutdown(t.Context()))
	require.NoError(t, p.Shutdown(t.Context()), "twice")
}

// TestThresholdsAreParametersOfThePattern, each time of the configuration, with the same name and default.
func TestThresholdsAreParametersOfThePattern(t *testing.T) {
	config := newConfig()
	keys := confmap.New()
	require.NoError(t, keys.Marshal(config))
	times := 0
	for _, value := range keys.ToStringMap() {
		if _, is := value.(time.Duration); is {
			times++
		}
	}
	parameters, err := config.Parameters()
	require.NoError(t, err)
	require.Len(t, parameters, times)
	for _, p := range parameters {
		require.Equal(t, p.Default, p.Value, p.Name)
		require.Empty(t, p.Source, p.Name)
		require.EqualValues(t, keys.Get(p.Name), parameters.Duration(p.Name), p.Name)
	}

	config.InitWait = 5 * time.Minute
	parameters, err = config.Parameters()
	require.NoError(t, err)
	require.EqualValues(t, 5*time.Minute, parameters.Duration("init_wait"))
	require.True(t, slices.ContainsFunc(parameters, func(p rule.Parameter) bool { return p.Source == "rankjoin::init_wait" }))
}

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		want     *Config
		problems []string
	}{
		"": {want: newConfig()},
		"all": {want: &Config{
			Window: 10 * time.Second, LongestWindow: 2 * time.Minute, Keep: time.Hour, MinWait: 30 * time.Second,
			InitWait: 5 * time.Minute, UnknownWait: 2 * time.Minute, Stopped: 90 * time.Second, StartWait: 7 * time.Minute, StuckWait: 3 * time.Minute, Settle: 2 * time.Second,
			Limits: Limits{Jobs: 10, Dumps: 1000, Stalls: 500, Calls: 2000, Findings: 5}, Storage: &storageID,
		}},
		"zero":    {problems: []string{"window: 0s is out of range: write a value from 100ms to 1h (default 5s)", "limits::dumps must be greater", "limits::stalls must be greater"}},
		"forgets": {problems: []string{"keep (10m0s) must be longer than window (1h0m0s)"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := createDefaultConfig()
			section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
			require.NoError(t, err)
			require.NoError(t, section.Unmarshal(config))
			if len(tc.problems) == 0 {
				require.NoError(t, confmap.Validate(config))
				require.Equal(t, tc.want, config)
			}
			for _, problem := range tc.problems {
				require.ErrorContains(t, confmap.Validate(config), problem)
			}
		})
	}
}

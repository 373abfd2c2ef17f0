package record

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

func TestStampLeavesOutWhatIsNotKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		process identity.Process
		want    map[string]any
	}{
		"rank in a pod": {
			identity.Process{
				PID: 42, ParentPID: 7, Comm: "python", ContainerID: "c0ffee", PodUID: "u-1",
				Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "job",
			},
			map[string]any{
				"process.pid": int64(42), "process.parent_pid": int64(7), "process.executable.name": "python",
				"container.id": "c0ffee", "k8s.pod.uid": "u-1", "gen_ai.training.rank": int64(3),
				"gen_ai.training.local_rank": int64(1), "gen_ai.training.world_size": int64(8), "gen_ai.training.job_id": "job",
			},
		},
		"a worker of a rank that was started again": {
			identity.Process{
				PID: 43, StartNS: 120_010_000_000, Rank: 3, LocalRank: identity.Unknown, WorldSize: 8, Rendezvous: "10.0.0.1:29500/8",
				RankPID: 42, RankStart: time.Unix(100, 5), Attempt: 1, Inherited: true,
			},
			map[string]any{
				"process.pid": int64(43), "process.start_ns": int64(120_010_000_000), "gen_ai.training.rank": int64(3), "gen_ai.training.world_size": int64(8),
				"gen_ai.training.rendezvous": "10.0.0.1:29500/8", "gen_ai.training.rank_pid": int64(42),
				"gen_ai.training.rank_start_unix_nano": int64(100_000_000_005), "gen_ai.training.restart_count": int64(0),
			},
		},
		"rank zero is a rank": {
			identity.Process{PID: 1, LocalRank: identity.Unknown, WorldSize: identity.Unknown},
			map[string]any{"process.pid": int64(1), "gen_ai.training.rank": int64(0)},
		},
		"plain process": {
			identity.Process{PID: 9, Comm: "bash", Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown},
			map[string]any{"process.pid": int64(9), "process.executable.name": "bash"},
		},
		"nothing": {
			identity.Process{Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown},
			map[string]any{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := pcommon.NewMap()
			IdentityAttributesOn(On(attributes)).Stamp(tc.process)
			require.Equal(t, tc.want, attributes.AsRaw())
		})
	}
}

func TestHostResource(t *testing.T) {
	const a, b = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tc := range map[string]struct {
		root fstest.MapFS
		node string
		want map[string]any
	}{
		"machine": {
			fstest.MapFS{"etc/machine-id": file(a + "\n")}, "",
			map[string]any{"host.name": "box", "host.id": a},
		},
		"boot": {
			fstest.MapFS{"proc/sys/kernel/random/boot_id": file("6c9eba90-4bd8-4a3c-9f0e-1c2d3e4f5a6b\n")}, "",
			map[string]any{"host.name": "box", "host.boot.id": "6c9eba90-4bd8-4a3c-9f0e-1c2d3e4f5a6b"},
		},
		"no boot": {fstest.MapFS{"proc/sys/kernel/random/boot_id": file("\x1b[2J90-4bd8-4a3c-9f0e-1c2d3e4f5a6b-0000\n")}, "", map[string]any{"host.name": "box"}},
		"pod: the node's files win": {
			fstest.MapFS{"proc/1/root/etc/machine-id": file(b + "\n"), "etc/machine-id": file(a)}, "node-7",
			map[string]any{"host.name": "box", "host.id": b, "k8s.node.name": "node-7"},
		},
		"first boot falls back to D-Bus": {
			fstest.MapFS{"etc/machine-id": file("uninitialized\n"), "var/lib/dbus/machine-id": file(b)}, "",
			map[string]any{"host.name": "box", "host.id": b},
		},
		"no machine id": {fstest.MapFS{"etc/machine-id": file("")}, "", map[string]any{"host.name": "box"}},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := map[string]any{}
			setter := func(key string) func(string) { return func(value string) { attributes[key] = value } }
			Host{Name: "box", ID: machineID(tc.root), NodeName: tc.node, Boot: bootID(tc.root)}.Set(setter("host.name"), setter("host.id"), setter("k8s.node.name"), setter("host.boot.id"))
			require.Equal(t, tc.want, attributes)
		})
	}
}

func TestThisHostHasItsNodeName(t *testing.T) {
	t.Setenv("K8S_NODE_NAME", "node-1")
	host := ThisHost()
	require.Equal(t, "node-1", host.NodeName)
	require.Equal(t, "node-1", host.Name)
}

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

type plain struct{ component.Component }

type resolver struct {
	component.Component
	identity.Resolver
}

func TestResolverIsFoundByComponentID(t *testing.T) {
	id, other := component.MustNewID("identity"), component.MustNewID("zpages")
	extensions := host{id: resolver{}, other: plain{}}

	found, err := Resolver(extensions, &id)
	require.NoError(t, err)
	require.Equal(t, resolver{}, found)

	found, err = Resolver(extensions, nil)
	require.NoError(t, err)
	require.Nil(t, found)

	_, err = Resolver(extensions, &other)
	require.ErrorContains(t, err, "name an identity extension")

	missing := component.MustNewIDWithName("identity", "typo")
	_, err = Resolver(extensions, &missing)
	require.ErrorContains(t, err, `identity "identity/typo": no such extension`)
}

func TestARecordIsInTheTraceOfItsRank(t *testing.T) {
	trace := identity.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1}
	rank := identity.Process{PID: 7, Rank: 1, LocalRank: identity.Unknown, WorldSize: 8, Trace: trace}
	early := thing{Early()}
	for name, write := range map[string]func(*Builder){
		"as it begins": func(b *Builder) { IdentityAttributesOn(b.Begin("thing", 9, Head{})).Stamp(rank) },
		"written before": func(b *Builder) {
			IdentityAttributesOn(early.attributes).Stamp(rank)
			b.Add(Head{}, early)
		},
		"on a copy": func(b *Builder) { b.Add(Head{}, thing{early.attributes.Copy()}) },
	} {
		t.Run(name, func(t *testing.T) {
			IdentityAttributesOn(early.attributes).Stamp(rank)
			b := newTestBuilder(true)
			write(b)
			r := onlyRecord(b.Emit())
			require.EqualValues(t, trace.TraceID, r.TraceID())
			require.EqualValues(t, trace.SpanID, r.SpanID())
			require.True(t, r.Flags().IsSampled())
		})
	}
	b := newTestBuilder(true)
	IdentityAttributesOn(b.Begin("thing", 9, Head{})).Stamp(identity.Process{Rank: 1})
	r := onlyRecord(b.Emit())
	require.True(t, r.TraceID().IsEmpty())
	require.False(t, r.Flags().IsSampled())
}

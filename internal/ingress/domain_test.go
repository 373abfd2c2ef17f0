package ingress

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/internal/peer"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
)

// domains is an extension that knows that the job llama is user 7's.
type domains struct {
	component.StartFunc
	component.ShutdownFunc
}

func (domains) DomainOf(user uint32, cgroup, job string) string {
	if cgroup != "" {
		return "pods in namespace " + cgroup
	}
	if user == 7 && job == "llama" {
		return "slurm job 77"
	}
	return fmt.Sprintf("user %d", user)
}

type host struct {
	component.Host
	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// startedOn is a receiver that is started beside an extension.
func startedOn(t *testing.T, extension component.Component) (*theirs, *consumertest.LogsSink, *consumertest.MetricsSink) {
	t.Helper()
	t.Setenv("K8S_NODE_NAME", "node-a")
	r, ld, md := &theirs{}, &consumertest.LogsSink{}, &consumertest.MetricsSink{}
	f := Wrap(r.factory(), Network)
	logs, err := f.CreateLogs(t.Context(), receivertest.NewNopSettings(kind), f.CreateDefaultConfig(), ld)
	require.NoError(t, err)
	metrics, err := f.CreateMetrics(t.Context(), receivertest.NewNopSettings(kind), f.CreateDefaultConfig(), md)
	require.NoError(t, err)
	h := host{componenttest.NewNopHost(), map[component.ID]component.Component{component.MustNewID("identity"): extension}}
	for _, c := range []component.Component{logs, metrics} {
		require.NoError(t, c.Start(t.Context(), h))
		t.Cleanup(func() { require.NoError(t, c.Shutdown(context.Background())) })
	}
	return r, ld, md
}

func user(n uint32) net.Addr { return peer.Addr{TCPAddr: loopback, User: n} }

// TestTheJobOfASenderIsInHisDomain: over loopback the kernel tells who sends, and what he says of
// a job is about his own.
func TestTheJobOfASenderIsInHisDomain(t *testing.T) {
	for name, tt := range map[string]struct {
		from net.Addr
		auth bool
		key  string
		job  string
		want any
	}{
		"its owner":                  {from: user(7), key: jobKeys[0], job: "llama", want: "slurm job 77"},
		"its owner, by its meeting":  {from: user(7), key: jobKeys[1], job: "llama", want: "slurm job 77"},
		"a pod, whatever its user":   {from: peer.Addr{TCPAddr: loopback, User: 7, Cgroup: "team-a"}, key: jobKeys[0], job: "llama", want: "pods in namespace team-a"},
		"another user":               {from: user(8), key: jobKeys[0], job: "llama", want: "user 8"},
		"one who has gone":           {from: peer.Addr{TCPAddr: loopback, Gone: true}, key: jobKeys[0], job: "llama", want: peer.Nobodys},
		"of no job":                  {from: user(7), key: "other", job: "llama"},
		"whom the kernel tells not":  {from: loopback, key: jobKeys[0], job: "llama"},
		"another machine":            {from: distant, key: jobKeys[0], job: "llama"},
		"an agent, which knows more": {from: user(8), auth: true, key: jobKeys[0], job: "llama", want: "slurm job 5"},
	} {
		t.Run(name, func(t *testing.T) {
			r, logs, metrics := startedOn(t, domains{})
			ctx := sentBy(t, tt.from, nil)
			if tt.auth {
				ctx = sentBy(t, tt.from, Agent{Relay: true})
			}
			say := func(m pcommon.Map) {
				m.PutStr(tt.key, tt.job)
				m.PutStr(domainKey, "slurm job 5") // his own word
			}
			ld := plog.NewLogs()
			rl := ld.ResourceLogs().AppendEmpty()
			say(rl.Resource().Attributes())
			say(rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Attributes())
			require.NoError(t, r.logs.ConsumeLogs(ctx, ld))
			md := pmetric.NewMetrics()
			rm := md.ResourceMetrics().AppendEmpty()
			say(rm.Resource().Attributes())
			say(rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty().Attributes())
			require.NoError(t, r.metrics.ConsumeMetrics(ctx, md))

			gotLogs, gotMetrics := logs.AllLogs()[0].ResourceLogs().At(0), metrics.AllMetrics()[0].ResourceMetrics().At(0)
			for _, m := range []pcommon.Map{
				gotLogs.Resource().Attributes(), gotLogs.ScopeLogs().At(0).LogRecords().At(0).Attributes(),
				gotMetrics.Resource().Attributes(), gotMetrics.ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0).Attributes(),
			} {
				require.Equal(t, tt.want, m.AsRaw()[domainKey])
			}
		})
	}
}

// TestASenderSpeaksOfHisOwnPod: what a log says of a rank joins what the kernel tells of it, by the
// pod. Over loopback the kernel tells in which the sender is.
func TestASenderSpeaksOfHisOwnPod(t *testing.T) {
	const (
		uid   = "0a1b2c3d-0001-4002-8003-0a1b2c3d4e5f"
		id    = "3f4c1f0a9d7be26cf2a5c0b3d1e8f7a6948372615f0e1d2c3b4a59687f6e5d4c"
		other = "0a1b2c3d-0001-4002-8003-0a1b2c3d4e60"
		its   = "/kubepods/pod" + uid + "/" + id
	)
	for name, tt := range map[string]struct {
		from net.Addr
		pod  string
		want bool // it is heard
	}{
		"its own":                             {peer.Addr{TCPAddr: loopback, User: 7, Cgroup: its}, uid, true},
		"another's":                           {peer.Addr{TCPAddr: loopback, User: 7, Cgroup: its}, other, false},
		"another's, by root in a pod":         {peer.Addr{TCPAddr: loopback, Cgroup: its}, other, false},
		"by a user outside of pods":           {peer.Addr{TCPAddr: loopback, User: 7, Cgroup: "/user.slice/user-7.slice"}, uid, false},
		"by a cgroup of a user's own":         {peer.Addr{TCPAddr: loopback, User: 7, Cgroup: "/user.slice/user-7.slice/user@7.service" + its}, uid, false},
		"by root, as a collector of logs":     {peer.Addr{TCPAddr: loopback, Cgroup: "/system.slice/collector.service"}, uid, true},
		"by root, where its cgroup is hidden": {peer.Addr{TCPAddr: loopback}, uid, false},
		"by one who has gone":                 {peer.Addr{TCPAddr: loopback, Gone: true}, uid, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, logs, _ := startedOn(t, domains{})
			ld := plog.NewLogs()
			rl := ld.ResourceLogs().AppendEmpty()
			rl.Resource().Attributes().PutStr("k8s.pod.uid", tt.pod)
			rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Attributes().PutStr("k8s.pod.uid", tt.pod)
			require.NoError(t, r.logs.ConsumeLogs(sentBy(t, tt.from, nil), ld))
			got := logs.AllLogs()[0].ResourceLogs().At(0)
			for _, m := range []pcommon.Map{got.Resource().Attributes(), got.ScopeLogs().At(0).LogRecords().At(0).Attributes()} {
				key := prefix + "k8s.pod.uid"
				if tt.want {
					key = "k8s.pod.uid"
				}
				require.Equal(t, tt.pod, m.AsRaw()[key])
				require.NotContains(t, m.AsRaw(), map[bool]string{true: prefix + "k8s.pod.uid", false: "k8s.pod.uid"}[tt.want])
			}
		})
	}
}

// computed is what each of eight ranks took for a step, as training code says it.
func computed(at time.Time, step int64, slow int64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("gen_ai.training.step.compute.duration")
	points := m.SetEmptyGauge().DataPoints()
	for rank := range int64(8) {
		p := points.AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(at.Add(time.Duration(step) * 10 * time.Second)))
		p.SetDoubleValue(1 + 0.01*float64(rank))
		if rank == slow {
			p.SetDoubleValue(2)
		}
		p.Attributes().PutStr("gen_ai.training.job_id", "llama")
		p.Attributes().PutInt("gen_ai.training.rank", rank)
		p.Attributes().PutInt("gen_ai.training.step", step)
		p.Attributes().PutInt("gen_ai.training.world_size", 8)
	}
	return md
}

// TestAnotherUsersMetricsAccuseNoRank: another user of the machine sends steps of the job of a
// victim, which accuse a rank or say that the slow one is fast. What is told of the victim's job
// is the same without him.
func TestAnotherUsersMetricsAccuseNoRank(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	for name, slow := range map[string]int64{"accuses rank 2": 2, "hides rank 5": -1} {
		t.Run(name, func(t *testing.T) {
			e, err := engine.New(rules, engine.Options{})
			require.NoError(t, err)
			r, _, metrics := startedOn(t, domains{})
			began := time.Unix(1_700_000_000, 0)
			for step := range int64(12) {
				for _, sent := range []struct {
					user uint32
					slow int64
				}{{8, slow}, {7, 5}, {8, slow}} {
					require.NoError(t, r.metrics.ConsumeMetrics(sentBy(t, user(sent.user), nil), computed(began, step, sent.slow)))
					e.Metrics(metrics.AllMetrics()[0])
					metrics.Reset()
				}
			}
			told := map[string]string{}
			for _, v := range e.Verdicts() {
				if v.Pattern == "straggler" {
					told[v.Culprit["job_domain"]] += v.Culprit["rank"]
				}
			}
			require.Equal(t, "5", told["slurm job 77"])
			delete(told, "slurm job 77")
			for domain := range told {
				require.Equal(t, "user 8", domain)
			}
		})
	}
}

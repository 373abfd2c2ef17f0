package patterns

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// withoutRemedy are the patterns whose faults nothing that is done afterwards undoes: they
// are events. Their verdicts end when they have been quiet for a while.
var withoutRemedy = map[string]string{
	"host_oom_kill": "a killed process stays dead; a job that starts anew is another run",
	"library_crash": "a crashed process stays dead",
	"rank_exit":     "a dead rank stays dead; a job that starts anew is another run",
}

func TestEveryVerdictEndsWhenItsRemedyIsDone(t *testing.T) {
	for _, r := range library(t) {
		reason := withoutRemedy[r.Name]
		require.Equal(t, len(r.Resolves) == 0, reason != "", "%s resolves with %d pieces of evidence, or says here why with none", r.Name, len(r.Resolves))
		require.True(t, reason == "" || r.OnExpiry == rule.Resolve, "%s stays open for ever", r.Name)
	}
}

// A fault that lasts for a day names its first process; by another it is told again.
func TestWhatLastsIsToldAgainOfItsPresentOwner(t *testing.T) {
	for _, r := range library(t) {
		if r.OnExpiry != rule.Resolve && slices.Contains(r.Culprit, "pid") {
			require.NotNil(t, r.Returns, r.Name)
			require.Contains(t, r.Returns.With, "pid", r.Name)
		}
	}
}

// rebootStories are the stories of the patterns that a reboot ends.
func rebootStories(t *testing.T, rules []rule.Rule) map[string]string {
	stories := map[string]string{}
	for i := range rules {
		if !endsWithReboot(&rules[i]) {
			continue
		}
		files, err := fs.Glob(FS(), rules[i].Name+"/testdata/*.txtar")
		require.NoError(t, err)
		for _, file := range slices.DeleteFunc(files, unfit) {
			stories[file] = rules[i].Name
		}
	}
	return stories
}

// unfit are stories in which verdicts are evicted, which stay as they were told, and those
// that tell of a reboot themselves.
func unfit(file string) bool {
	return strings.Contains(file, "flood") || strings.Contains(file, "reboot")
}

func endsWithReboot(r *rule.Rule) bool {
	return slices.ContainsFunc(r.Resolves, func(e rule.Evidence) bool { return e.Reboot })
}

// All that was seen of a machine is of its first boot; then comes another, an hour later.
func TestAStoryAndARebootAreOver(t *testing.T) {
	rules := library(t)
	ended := map[string]int{}
	for file, pattern := range rebootStories(t, rules) {
		before, after := playedThen(t, rules, file, "boot-1"), playedThen(t, rules, file, "boot-2")
		for i, v := range after {
			if v.Pattern != pattern || v.Boot == "" { // its evidence says nothing of a machine
				continue
			}
			require.Equal(t, verdict.Resolved, v.Status, "%s: %s", file, v.Headline)
			if before[i].Status == verdict.Open {
				ended[pattern]++
				require.Equal(t, "rebooted", v.Evidence[len(v.Evidence)-1].Name, "%s: %s", file, v.Headline)
			}
		}
	}
	for i := range rules {
		if endsWithReboot(&rules[i]) && rules[i].OnExpiry == rule.Forget {
			require.Positive(t, ended[rules[i].Name], "no story of %s leaves a verdict open that a reboot ends", rules[i].Name)
		}
	}
}

// playedThen plays a story in its first boot, then tells of a boot of all its machines.
func playedThen(t *testing.T, rules []rule.Rule, file, boot string) []verdict.Verdict {
	s := readStory(t, file)
	hosts := map[string]bool{}
	first := func(resource pcommon.Map) {
		if host, ok := resource.Get("host.name"); ok {
			hosts[host.AsString()] = true
			if _, told := resource.Get("host.boot.id"); !told {
				resource.PutStr("host.boot.id", "boot-1")
			}
		}
	}
	s.MarkLogs = func(ld plog.Logs) { first(ld.ResourceLogs().At(0).Resource().Attributes()) }
	s.MarkMetrics = func(md pmetric.Metrics) { first(md.ResourceMetrics().At(0).Resource().Attributes()) }
	played(t, rules, s)

	at := endOf(s) + story.Offset(time.Minute)
	for host := range hosts {
		if !strings.ContainsAny(host, "{}") {
			s.Input.Records = append(s.Input.Records, story.Record{
				At: at, Log: rule.EventBoot,
				Resource:   map[string]any{"host.name": host, "host.boot.id": boot},
				Attributes: map[string]any{"tracecore.trust": "proven", "host.uptime_ns": int64(30 * time.Second)},
			})
		}
	}
	return played(t, rules, s)
}

func readStory(t *testing.T, file string) *story.Story {
	archive, err := fs.ReadFile(FS(), file)
	require.NoError(t, err)
	s, err := story.Parse(file, archive)
	require.NoError(t, err)
	return &s
}

func played(t *testing.T, rules []rule.Rule, s *story.Story) []verdict.Verdict {
	result, err := s.Run(rules)
	require.NoError(t, err)
	slices.SortStableFunc(result.Verdicts, func(a, b verdict.Verdict) int { return strings.Compare(a.ID, b.ID) })
	return result.Verdicts
}

// endOf is when the last record of a story is told.
func endOf(s *story.Story) story.Offset {
	end := story.Offset(0)
	for _, r := range s.Input.Records {
		end = max(end, r.At)
		if r.Repeat != nil {
			end = max(end, r.At+story.Offset(r.Repeat.Count)*r.Repeat.Every)
		}
	}
	return end
}

// remedy is what somebody does about a fault, as the records tell it that come of it.
type remedy struct {
	name  string
	ends  []string          // patterns
	event string            // or a metric
	of    map[string]string // attributes of the record that have what the verdict names
	more  map[string]any
	each  map[string]string // of patterns whose faults are of several things, the attribute that names one: it is done to each

	repeat *story.Repeat // how often it is told
	value  float64       // of a metric
	alone  bool          // told of another device of the machine it ends nothing
	node   bool          // the records name the machine as a node of Kubernetes
	needs  string        // evidence without which it is no remedy

	anywhere bool // it is done to a thing that is one and the same on each machine
}

func remedies() []remedy {
	return []remedy{
		{name: "a reset of the GPU", ends: []string{"fabric_fault", "gpu_fault", "gpu_lost", "hbm_ecc", "xid_impact"}, event: "gpu.recovered",
			of: map[string]string{"gpu.id": "gpu"}, more: map[string]any{"gpu.vendor": "nvidia"}, each: map[string]string{"fabric_fault": "gpu.id"}},
		{name: "the driver needs no recovery any more", ends: []string{"fabric_fault", "gpu_lost", "hbm_ecc", "xid_impact"}, event: "gpu.xid",
			of: map[string]string{"gpu.id": "gpu"}, each: map[string]string{"fabric_fault": "gpu.id"}, more: map[string]any{
				"kernelevents.xid": 154, "kernelevents.recovery_action": "none", "kernelevents.class": "informational", "kernelevents.severity": "info", "kernelevents.injected": false,
			}},
		{name: "healthy telemetry of the same device", ends: []string{"gpu_lost"}, event: "hw.temperature", value: 55, alone: true,
			of: map[string]string{"gpu.id": "gpu"}, more: map[string]any{"hw.type": "gpu", "hw.id": "GPU-0"}, repeat: &story.Repeat{Count: 24, Every: story.Offset(10 * time.Second)}},
		{name: "another device at the address", ends: []string{"gpu_lost"}, event: "hw.temperature", value: 31, alone: true,
			of: map[string]string{"gpu.id": "gpu"}, more: map[string]any{"hw.type": "gpu", "hw.id": "GPU-of-the-spare-part"}, repeat: &story.Repeat{Count: 24, Every: story.Offset(10 * time.Second)}},
		{name: "the link of the GPU is as wide as it should be", ends: []string{"pcie_degradation"}, event: "hw.gpu.pcie.link.width.ratio", value: 1, alone: true,
			of: map[string]string{"gpu.id": "gpu"}, more: map[string]any{"hw.type": "gpu"}, repeat: &story.Repeat{Count: 40, Every: story.Offset(10 * time.Second)}},
		{name: "a link is up and stays so", ends: []string{"ib_link_flap"}, event: "network.link", alone: true,
			of: map[string]string{"network.rdma.device": "device"}, more: map[string]any{"network.link.state": "up"}, repeat: &story.Repeat{Count: 15, Every: story.Offset(time.Minute)}},
		{name: "a port is active", ends: []string{"ib_link_down"}, event: "network.rdma.port", alone: true,
			of: map[string]string{"network.rdma.device": "device", "network.port": "port"}, more: map[string]any{"network.rdma.port.state": "active", "network.rdma.port.inactive_ns": 0}},
		{name: "a file system is mounted again", ends: []string{"fuse_stall", "checkpoint_stall", "dataloader_hang"}, event: "fuse.stall.end",
			of: map[string]string{"fuse.device": "device"}, more: map[string]any{"fuse.stall.end_reason": "unmounted"}},
		{name: "another pod in the place of the evicted one", ends: []string{"pod_evicted"}, event: "k8s.event", node: true,
			of: map[string]string{"k8s.node.name": "node", "k8s.pod.uid": "pod"}, more: map[string]any{"k8s.event.hint": "pod_replaced", "k8s.event.message": "pod ml/train-9 was scheduled in its place"}},
		{name: "a container of the pod runs", ends: []string{"pod_not_starting"}, event: "k8s.event", node: true, alone: true, anywhere: true, needs: "image",
			of: map[string]string{"k8s.node.name": "node", "k8s.pod.uid": "pod", "gen_ai.training.job_id": "job"}, more: map[string]any{"k8s.event.hint": "pod_started", "k8s.event.message": "pod ml/llama-7 has started"}, each: map[string]string{"pod_not_starting": "k8s.pod.uid"}},
		{name: "the node is not short of it any more", ends: []string{"node_pressure"}, event: "k8s.event", node: true,
			of: map[string]string{"k8s.node.name": "node", "k8s.node.pressure": "pressure"}, more: map[string]any{"k8s.event.hint": "node_recovered"}, each: map[string]string{"node_pressure": "k8s.node.pressure"}},
		{name: "the node is ready again", ends: []string{"node_pressure"}, event: "k8s.event", node: true, needs: "unhealthy",
			of: map[string]string{"k8s.node.name": "node"}, more: map[string]any{"k8s.event.hint": "node_recovered"}},
		{name: "an NFS server answers", ends: []string{"checkpoint_stall"}, event: "storage.recovered", of: map[string]string{"server.address": "server"}},
	}
}

// is what the record of the remedy says, of those attributes.
func (m *remedy) is(host string, attributes map[string]any, at story.Offset) story.Record {
	r := story.Record{At: at, Log: m.event, Resource: map[string]any{"host.name": host}, Attributes: attributes, Repeat: m.repeat}
	if m.value != 0 {
		r.Log, r.Metric, r.Type, r.Value = "", m.event, "gauge", m.value
		r.Resource["tracecore.trust"] = "proven"
	}
	return r
}

// done is the record of the remedy, done to what a verdict names; false where that is not
// known.
func (m *remedy) done(v *verdict.Verdict, at story.Offset) (story.Record, bool) {
	if m.needs != "" && !slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Name == m.needs }) {
		return story.Record{}, false
	}
	attributes := map[string]any{"tracecore.trust": "proven"}
	for key, value := range m.more {
		attributes[key] = value
	}
	for key, name := range m.of {
		if v.Culprit[name] == "" {
			return story.Record{}, false
		}
		attributes[key] = v.Culprit[name]
	}
	host := v.Culprit["host"]
	if m.node {
		host = v.Culprit["node"]
	}
	return m.is(host, attributes, at), host != ""
}

// toEach is the remedy done to all things of which a story tells where its fault is of several.
func (m *remedy) toEach(pattern string, records []story.Record, r *story.Record) []story.Record {
	all, name := []story.Record{*r}, m.each[pattern]
	for i := range records {
		thing := records[i].Attributes[name]
		if thing == nil || slices.ContainsFunc(all, func(one story.Record) bool { return one.Attributes[name] == thing }) {
			continue
		}
		another := *r
		another.Attributes = maps.Clone(r.Attributes)
		another.Attributes[name] = thing
		all = append(all, another)
	}
	return all
}

// elsewhere are the records of the remedy, done to another machine, and to another device of this one.
func (m *remedy) elsewhere(r *story.Record) map[string]story.Record {
	others := map[string]story.Record{}
	switch {
	case m.anywhere:
	case m.node:
		attributes := maps.Clone(r.Attributes)
		attributes["k8s.node.name"] = "another"
		others["machine"] = m.is("another", attributes, r.At)
	default:
		others["machine"] = m.is("another", r.Attributes, r.At)
	}
	if m.alone {
		attributes := maps.Clone(r.Attributes)
		for key := range m.of {
			attributes[key] = "0000:ff:00.0"
		}
		others["device"] = m.is(r.Resource["host.name"].(string), attributes, r.At)
	}
	return others
}

// What a remedy is done to is over, however the fault came about; nothing is told that was
// not before. Done to another machine or device it ends nothing. A reboot and a restart of
// the job have tests of their own (above, and story/restart_test.go).
func TestAStoryAndItsRemedyAreOver(t *testing.T) {
	rules := library(t)
	for _, m := range remedies() {
		t.Run(m.name, func(t *testing.T) {
			ended := map[string]int{}
			for _, pattern := range m.ends {
				files, err := fs.Glob(FS(), pattern+"/testdata/*.txtar")
				require.NoError(t, err)
				for _, file := range slices.DeleteFunc(files, unfit) {
					ended[pattern] += m.over(t, rules, file, pattern)
				}
			}
			for _, pattern := range m.ends {
				require.Positive(t, ended[pattern], "no story of %s leaves a verdict open that this ends", pattern)
			}
		})
	}
}

// passes reports whether the time that the remedy takes ends a verdict by itself.
func (m *remedy) passes(t *testing.T, rules []rule.Rule, s *story.Story, records []story.Record, r *story.Record, id string) bool {
	if m.repeat == nil {
		return false
	}
	s.Input.Records = append(slices.Clone(records), m.is("nobody", r.Attributes, r.At))
	return slices.ContainsFunc(played(t, rules, s), func(w verdict.Verdict) bool { return w.ID == id && w.Status != verdict.Open })
}

// over plays a story and then the remedy, and returns how many verdicts that ended.
func (m *remedy) over(t *testing.T, rules []rule.Rule, file, pattern string) (ended int) {
	s := readStory(t, file)
	before, end := played(t, rules, s), endOf(s)
	records := slices.Clone(s.Input.Records)
	for i := range before {
		v := &before[i]
		r, ok := m.done(v, end+story.Offset(time.Minute))
		if v.Pattern != pattern || v.Status != verdict.Open || !ok {
			continue
		}
		if m.passes(t, rules, s, records, &r, v.ID) {
			continue
		}
		s.Input.Records = slices.Concat(records, m.toEach(pattern, records, &r))
		ended++
		for _, w := range played(t, rules, s) {
			at, told := slices.BinarySearchFunc(before, w.ID, func(b verdict.Verdict, id string) int { return strings.Compare(b.ID, id) })
			require.True(t, told, "%s: new: %s", file, w.Headline)
			if w.ID == v.ID {
				require.Equal(t, verdict.Resolved, w.Status, "%s: %s", file, w.Headline)
			} else if before[at].Status == verdict.Resolved {
				require.Equal(t, verdict.Resolved, w.Status, "%s: opened again: %s", file, w.Headline)
			}
		}

		for what, other := range m.elsewhere(&r) {
			s.Input.Records = append(slices.Clone(records), other)
			for _, w := range played(t, rules, s) {
				require.True(t, w.ID != v.ID || w.Status == verdict.Open, "%s: ended by another %s's: %s", file, what, w.Headline)
			}
		}
	}
	return ended
}

// A remedy fits what was seen: the same story with another signal or another library has
// other steps, and the steps of the first are not among them.
func TestRemediesFitTheFacts(t *testing.T) {
	rules := library(t)
	const worker, connects = "dataloader_hang/testdata/worker_killed_and_the_rank_waits.txtar", "nccl_bootstrap_timeout/testdata/no_answer.txtar"
	bus := []string{"process.exit.signal: 7", "process.exit.signal: 9", "SIGBUS", "SIGKILL"}
	segv := []string{"process.exit.signal: 7", "process.exit.signal: 11\n      process.exit.core_dump: true", "SIGBUS", "SIGSEGV"}
	for name, tt := range map[string]struct {
		file, pattern string
		instead       []string
		says, not     []string
	}{
		"a worker dies of SIGBUS":  {worker, "dataloader_hang", nil, []string{"/dev/shm"}, []string{"core", "SIGKILL"}},
		"a worker dies of SIGKILL": {worker, "dataloader_hang", bus, []string{"SIGKILL", "oom-kill"}, []string{"core", "/dev/shm"}},
		"a worker leaves a core":   {worker, "dataloader_hang", segv, []string{"coredumpctl info 1001"}, []string{"SIGKILL", "/dev/shm"}},
		"the store is not reached": {connects, "nccl_bootstrap_timeout", nil, []string{"MASTER_ADDR", "nc -vz -w 5 10.0.0.9 29500"}, []string{"NCCL", "GLOO"}},
		"Gloo does not connect":    {connects, "nccl_bootstrap_timeout", []string{"kind: store", "kind: gloo"}, []string{"GLOO_SOCKET_IFNAME"}, []string{"NCCL", "MASTER"}},
		"NCCL does not connect":    {connects, "nccl_bootstrap_timeout", []string{"kind: store", "kind: bootstrap"}, []string{"NCCL_SOCKET_IFNAME"}, []string{"GLOO", "MASTER"}},
		"a library nobody knows":   {connects, "nccl_bootstrap_timeout", []string{"kind: store", "kind: other"}, []string{"network policy"}, []string{"GLOO", "MASTER", "NCCL"}},
	} {
		t.Run(name, func(t *testing.T) {
			archive, err := fs.ReadFile(FS(), tt.file)
			require.NoError(t, err)
			s, err := story.Parse(tt.file, []byte(strings.NewReplacer(tt.instead...).Replace(string(archive))))
			require.NoError(t, err)
			verdicts := slices.DeleteFunc(played(t, rules, &s), func(v verdict.Verdict) bool { return v.Pattern != tt.pattern })
			require.Len(t, verdicts, 1)
			require.NotEmpty(t, verdicts[0].Steps)
			for _, words := range tt.says {
				require.Contains(t, verdicts[0].Remediation, words)
			}
			for _, words := range tt.not {
				require.NotContains(t, verdicts[0].Remediation, words)
			}
		})
	}
}

package rankjoinprocessor

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/join"
)

// What the processor emits.
const (
	eventIncomplete = "nccl.collective.incomplete"
	eventComplete   = "nccl.collective.complete"
	scopeName       = "github.com/tracecoreai/tracecore/processors/rankjoinprocessor"
)

// records turns a round into log records, each with the host of its culprit as
// its resource.
func records(rounds []join.Round, now time.Time) plog.Logs {
	logs := plog.NewLogs()
	for i := range rounds {
		for k := range rounds[i].Findings {
			f := &rounds[i].Findings[k]
			resource := logs.ResourceLogs().AppendEmpty()
			putText(resource.Resource().Attributes(), "host.name", f.Host.Name)
			putText(resource.Resource().Attributes(), "k8s.node.name", f.Host.Node)
			putFinding(start(resource, now), f)
		}
		for _, cleared := range rounds[i].Cleared {
			r := start(logs.ResourceLogs().AppendEmpty(), now)
			r.SetEventName(eventComplete)
			r.SetSeverityNumber(plog.SeverityNumberInfo)
			r.SetSeverityText("info")
			r.Body().SetStr("later dumps show no incomplete collective in this group any more")
			r.Attributes().PutStr("nccl.collective.run", cleared.Run)
			r.Attributes().PutStr("nccl.fr.pg_id", cleared.Group)
			putText(r.Attributes(), "nccl.fr.pg_desc", cleared.Desc)
			putText(r.Attributes(), "gen_ai.training.job_id", cleared.Job)
		}
	}
	return logs
}

func start(resource plog.ResourceLogs, now time.Time) plog.LogRecord {
	scope := resource.ScopeLogs().AppendEmpty()
	scope.Scope().SetName(scopeName)
	r := scope.LogRecords().AppendEmpty()
	r.SetTimestamp(pcommon.NewTimestampFromTime(now))
	r.SetObservedTimestamp(r.Timestamp())
	return r
}

func putFinding(r plog.LogRecord, f *join.Finding) {
	r.SetEventName(eventIncomplete)
	r.SetSeverityNumber(plog.SeverityNumberError)
	r.SetSeverityText("error")
	if f.Sure == join.Unsure {
		r.SetSeverityNumber(plog.SeverityNumberWarn)
		r.SetSeverityText("warning")
	}
	r.Body().SetStr(f.String())
	a := r.Attributes()
	a.EnsureCapacity(32)
	a.PutStr("nccl.collective.finding", string(f.Kind))
	a.PutStr("nccl.collective.id", f.ID)
	a.PutStr("nccl.collective.run", f.Run)
	a.PutStr("nccl.collective.sureness", string(f.Sure))
	putText(a, "nccl.collective.operation", f.Operation)
	a.PutBool("nccl.collective.p2p", f.P2P)
	a.PutInt("nccl.fr.collective_seq_id", f.Seq)
	a.PutStr("nccl.fr.pg_id", f.Group)
	putText(a, "nccl.fr.pg_desc", f.Desc)
	a.PutStr("nccl.collective.group", f.GroupName())
	a.PutInt("nccl.collective.members", int64(f.Members))
	a.PutInt("nccl.collective.downstream", int64(f.Downstream))
	putText(a, "nccl.collective.mismatch", f.What)
	putText(a, "nccl.collective.detail", f.Detail)
	if f.Behind > 0 {
		a.PutInt("nccl.collective.behind", f.Behind)
	}
	if !f.Since.IsZero() {
		a.PutInt("nccl.collective.since_unix_nano", f.Since.UnixNano())
		a.PutInt("nccl.collective.waited_ns", f.Waited.Nanoseconds())
	}
	putRanks(a, f)
	putLines(a, "nccl.collective.code", "nccl.collective.line", f.Code)
	putLines(a, "nccl.collective.last_code", "nccl.collective.last_line", f.Last)
	putText(a, "nccl.collective.doubt", strings.Join(f.Because, "; "))
	putText(a, "nccl.collective.sockets", string(f.Sockets))
	putText(a, "nccl.collective.sockets_detail", f.Stalls)
	putCulprit(a, f)
}

func putRanks(a pcommon.Map, f *join.Finding) {
	for _, list := range []struct {
		name  string
		ranks []int
	}{
		{"nccl.collective.waiting_ranks", f.Waiting},
		{"nccl.collective.culprit_ranks", f.Culprits},
		{"nccl.collective.no_dump_ranks", f.NoDump},
		{"nccl.collective.affected_ranks", f.Affected},
		{"nccl.collective.held_ranks", f.Held},
		{"nccl.collective.alive_ranks", f.Alive},
		{"nccl.collective.ended_ranks", f.Ended},
	} {
		if len(list.ranks) == 0 {
			continue
		}
		slice := a.PutEmptySlice(list.name)
		slice.EnsureCapacity(len(list.ranks))
		for _, rank := range list.ranks {
			slice.AppendEmpty().SetInt(int64(rank))
		}
	}
}

// putCulprit stamps the job, and the identity of the first rank to blame.
func putCulprit(a pcommon.Map, f *join.Finding) {
	putText(a, "gen_ai.training.job_id", f.Job)
	if f.World > 0 {
		a.PutInt("gen_ai.training.world_size", int64(f.World))
	}
	if rank := f.Rank(); rank >= 0 {
		a.PutInt("gen_ai.training.rank", int64(rank))
	}
	putText(a, "k8s.pod.uid", f.Host.Pod)
	putText(a, "k8s.pod.name", f.Host.PodName)
	putText(a, "k8s.namespace.name", f.Host.Namespace)
	putText(a, "k8s.workload", f.Host.Workload)
	putText(a, "container.id", f.Host.Container)
	putText(a, "process.executable.name", f.Host.Process)
	if f.Host.PID > 0 {
		a.PutInt("process.pid", f.Host.PID)
	}
}

func putText(a pcommon.Map, key, text string) {
	if text != "" {
		a.PutStr(key, text)
	}
}

// putLines puts lines of code, and the innermost for texts of one line.
func putLines(a pcommon.Map, all, innermost string, lines []string) {
	if len(lines) == 0 {
		return
	}
	a.PutStr(innermost, lines[0])
	slice := a.PutEmptySlice(all)
	for _, line := range lines {
		slice.AppendEmpty().SetStr(line)
	}
}

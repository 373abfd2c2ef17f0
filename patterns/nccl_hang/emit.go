package ncclhang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
	who "github.com/tracecoreai/tracecore/patterns/verdict"
)

// The events of the findings, which the pattern reads as log records.
const (
	eventIncomplete = "nccl.collective.incomplete"
	eventComplete   = "nccl.collective.complete"
)

// attributes leaves out texts, numbers and lists that say nothing.
type attributes map[string]any

func (a attributes) text(key, text string) {
	if text != "" {
		a[key] = text
	}
}

func (a attributes) number(key string, n int64) {
	if n > 0 {
		a[key] = n
	}
}

func (a attributes) ranks(key string, ranks []int) {
	list := make([]any, len(ranks))
	for i, rank := range ranks {
		list[i] = rank
	}
	a.list(key, list)
}

func (a attributes) list(key string, list []any) {
	if len(list) > 0 {
		a[key] = list
	}
}

// lines puts lines of code, and the innermost for texts of one line.
func (a attributes) lines(all, innermost string, lines []string) {
	list := make([]any, len(lines))
	for i, line := range lines {
		list[i] = line
	}
	if a.list(all, list); len(lines) > 0 {
		a[innermost] = lines[0]
	}
}

// records are the findings of a round: what is incomplete, and what is no longer.
func (r *Round) records(now int64) []rule.Finding {
	var all []rule.Finding
	for i := range r.Findings {
		all = append(all, r.Findings[i].record(now))
	}
	for _, c := range r.Cleared {
		a := attributes{"nccl.collective.run": c.Run}
		a.text("nccl.fr.pg_id", c.Group)
		a.text("nccl.fr.pg_desc", c.Desc)
		a.text("nccl.collective.stop", c.Stop)
		a.text("gen_ai.training.job_id", c.Job)
		a.text("gen_ai.training.job_domain", c.Domain)
		all = append(all, rule.Finding{
			Event: eventComplete, ID: fmt.Sprintf("%q %q %q", c.Run, c.Group, c.Desc), Time: now, Last: now, Attributes: a,
			Severity: plog.SeverityNumberInfo, Body: "no incomplete collective any more, by later dumps, calls or stacks",
		})
	}
	return all
}

func (f *Finding) record(now int64) rule.Finding {
	severity := plog.SeverityNumberError
	if f.Sure == Unsure {
		severity = plog.SeverityNumberWarn
	}
	resource := attributes{}
	resource.text("host.name", f.Host.Host)
	resource.text("k8s.node.name", f.Host.Node)
	a := attributes{
		"nccl.collective.finding": string(f.Kind), "nccl.collective.id": f.ID, "nccl.collective.run": f.Run, "nccl.collective.sureness": string(f.Sure),
		"nccl.collective.p2p": f.P2P, "nccl.fr.collective_seq_id": f.Seq, "nccl.fr.pg_id": f.Group, "nccl.collective.group": f.GroupName(),
		"nccl.collective.members": f.Members, "nccl.collective.downstream": f.Downstream,
	}
	if f.ofStacks() { // which collective it is, they do not say
		for _, key := range []string{"nccl.fr.collective_seq_id", "nccl.fr.pg_id", "nccl.collective.group", "nccl.collective.p2p"} {
			delete(a, key)
		}
	}
	f.describe(a)
	f.putCalls(a)
	f.putRanks(a)
	f.putHosts(a)
	f.putEdges(a)
	f.putCulprit(a)
	return rule.Finding{Event: eventIncomplete, ID: f.ID, Time: now, Last: now, Severity: severity, Body: f.String(), Resource: resource, Attributes: a}
}

func (f *Finding) describe(a attributes) {
	a.text("nccl.collective.operation", f.Operation)
	a.text("nccl.fr.pg_desc", f.Desc)
	a.text("nccl.collective.mismatch", f.What)
	a.text("nccl.collective.detail", f.Detail)
	a.number("nccl.collective.behind", f.Behind)
	if !f.Since.IsZero() {
		a["nccl.collective.since_unix_nano"], a["nccl.collective.waited_ns"] = f.Since.UnixNano(), f.Waited.Nanoseconds()
	}
	a.lines("nccl.collective.code", "nccl.collective.line", f.Code)
	a.lines("nccl.collective.last_code", "nccl.collective.last_line", f.Last)
	a.text("nccl.collective.doubt", strings.Join(f.Because, "; "))
	a.text("nccl.collective.sockets", string(f.Sockets))
	a.text("nccl.collective.sockets_detail", f.Stalls)
}

// putCalls puts what calls alone tell.
func (f *Finding) putCalls(a attributes) {
	a.text("nccl.collective.stop", f.Stop)
	if f.Comm == "" && !f.ofStacks() {
		return
	}
	a.text("nccl.call.comm", f.Comm)
	a.text("nccl.collective.mount", f.Mount)
	a.text("nccl.collective.waits_in", f.In)
	a.text("nccl.collective.elements", f.Elements)
	a.text("nccl.collective.does", f.Does)
	if f.Grouped {
		a["nccl.collective.lacks"] = f.lacks()
	}
	a.text("nccl.collective.gpu", f.GPU)
	a.text("nccl.collective.gpus", f.GPUs)
	a.text("gpu.id", f.Device)
	if len(f.Culprits) > 0 {
		a["nccl.collective.who"] = f.who()
	}
	a.text("nccl.collective.called_by", f.CalledBy)
}

func (f *Finding) putRanks(a attributes) {
	if f.Local {
		return // these numbers are no ranks of the job
	}
	if f.Comm == "" && !f.ofStacks() || len(f.Waiting) <= mostListed {
		a.ranks("nccl.collective.waiting_ranks", f.Waiting)
	}
	a.ranks("nccl.collective.culprit_ranks", f.Culprits)
	a.ranks("nccl.collective.no_dump_ranks", f.NoDump)
	a.ranks("nccl.collective.affected_ranks", f.Affected)
	a.ranks("nccl.collective.held_ranks", f.Held)
	a.ranks("nccl.collective.alive_ranks", f.Alive)
	a.ranks("nccl.collective.ended_ranks", f.Ended)
}

// putHosts says between which machines the fault is.
func (f *Finding) putHosts(a attributes) {
	hosts := make([]any, len(f.Hosts))
	for i, host := range f.Hosts {
		hosts[i] = host
	}
	a.list("nccl.collective.hosts", hosts)
}

// putEdges says who waits for whom: those in the collective and behind it for those that it
// lacks.
func (f *Finding) putEdges(a attributes) {
	const most = 256 // bytes: the engine keeps as much of a field
	lacking := f.Culprits
	switch f.Kind {
	case NotEntered, NotStarted, NotCalled, Works, NotInitialized, Halted, Gathers, Absent:
	case NoDump:
		lacking = f.NoDump
	default:
		return
	}
	others := func(ranks []int) who.Ranks {
		return slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ranks))), func(rank int) bool { return slices.Contains(lacking, rank) })
	}
	direct, all := others(f.Waiting), others(slices.Concat(f.Waiting, f.Affected))
	if f.Local || len(lacking) == 0 || len(all) == 0 {
		return
	}
	w := who.Wait{Ranks: all.String(), Count: len(all), For: who.RanksNamed(lacking), What: cmp.Or(f.Operation, "a collective"), Since: f.Since}
	if f.Operation != "" && f.Seq > 0 {
		w.What += fmt.Sprintf(" #%d", f.Seq)
	}
	if len(direct) < len(all) {
		w.Direct = direct.String()
	}
	a.text("nccl.collective.edges", who.WriteWaits([]who.Wait{w}, most))
}

// putCulprit stamps the job, and the identity of the first rank to blame.
func (f *Finding) putCulprit(a attributes) {
	a.text("gen_ai.training.job_id", f.Job)
	a.text("gen_ai.training.job_domain", f.Domain)
	a.number("gen_ai.training.world_size", int64(f.World))
	if rank := f.Rank(); rank >= 0 {
		a["gen_ai.training.rank"] = rank
	}
	a.text("k8s.pod.uid", f.Host.Pod)
	a.text("k8s.pod.name", f.Host.PodName)
	a.text("k8s.namespace.name", f.Host.Namespace)
	a.text("k8s.workload", f.Host.Workload)
	a.text("container.id", f.Host.Container)
	a.text("process.executable.name", f.Host.Process)
	a.number("process.pid", f.Host.PID)
	a.number(rule.AttributeRankPID, f.Process.PID)
	a.number(rule.AttributeRankStart, f.Process.Start)
}

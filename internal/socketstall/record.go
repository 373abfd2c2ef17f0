package socketstall

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/cut"
)

// Attributes are those that Parse reads.
var Attributes = []string{
	"gen_ai.training.rank", "gen_ai.training.job_id", "gen_ai.training.job_domain", "gen_ai.training.world_size",
	"process.pid", "process.start_ns", "process.executable.name", "k8s.pod.uid", "container.id", "host.name", "k8s.node.name",
	"k8s.namespace.name", "k8s.pod.name", "k8s.workload",
	"nccl.socket.cause", "nccl.socket.direction", "nccl.socket.kind", "nccl.socket.stall.id", "nccl.socket.stall.age_ns", "nccl.socket.stall.end_reason",
	"nccl.socket.last_sent_age_ns", "nccl.socket.last_received_age_ns", "nccl.socket.receive_queue_bytes", "nccl.socket.error",
	"nccl.socket.sent_bytes", "nccl.socket.unacked_bytes", "nccl.socket.received_bytes", "nccl.peer.received_bytes",
	"nccl.rank.last_sent_age_ns", "nccl.rank.last_received_age_ns", "nccl.rank.state", "nccl.rank.activity", "nccl.rank.silence", "nccl.rank.tick_ns", "nccl.rank.usual_phase_ns", "nccl.rank.watched_ns", "nccl.socket.watched_ns",
	"nccl.rank.syscall", "nccl.rank.wait_channel", "nccl.rank.file", "nccl.rank.pauses", "nccl.rank.awaits", "nccl.rank.child_name", "nccl.rank.child_pid", "nccl.rank.tree",
	"nccl.rank.thread_id", "nccl.rank.thread_syscall", "nccl.rank.thread_wait_channel", "nccl.rank.thread_file",
	"nccl.rank.child_state", "nccl.rank.child_awaited", "nccl.rank.child_syscall", "nccl.rank.child_wait_channel", "nccl.rank.child_file",
	"nccl.rank.cpu_limit_cgroup", "nccl.rank.cpu_limit_millicores", "nccl.rank.cpu_throttled_percent", "nccl.rank.cpu_pressure_percent",
	"signal.name", "signal.sender.name", "signal.sender.pid", "signal.sender.relation", "signal.sender.user_id",
	"tracecore.drill", "nccl.peer.rank", "network.local.address", "network.local.port", "network.peer.address", "network.peer.port",
}

// Bounds of one record: any sender may be hostile.
const (
	MaxRank = 1<<20 - 1
	MaxText = 1200 // bytes; longer texts are cut
)

// Unknown marks a number that a record does not have.
const Unknown = -1

// Identity says where a rank runs, as far as its records say.
type Identity struct {
	Host      string `json:"h,omitempty"`
	Node      string `json:"n,omitempty"`
	PID       int64  `json:"p,omitempty"`
	Started   int64  `json:"st,omitempty"` // of the process, on the boot clock; 0 when not known
	Process   string `json:"e,omitempty"`
	Pod       string `json:"u,omitempty"`
	Container string `json:"c,omitempty"`
	Namespace string `json:"ns,omitempty"` // of the pod
	PodName   string `json:"pn,omitempty"`
	Workload  string `json:"wl,omitempty"`
	Drill     bool   `json:"dr,omitempty"` // of a drill, as it has proven
}

// IdentityOf reads the identity of the process that a record is about.
func IdentityOf(resource, a pcommon.Map) Identity {
	i := Identity{
		Host: Text(resource, "host.name"), Node: Text(resource, "k8s.node.name"), Pod: Text(a, "k8s.pod.uid"),
		Container: Text(a, "container.id"), Process: Text(a, "process.executable.name"),
		Namespace: Text(a, "k8s.namespace.name"), PodName: Text(a, "k8s.pod.name"), Workload: Text(a, "k8s.workload"),
	}
	i.PID, _ = Number(a, "process.pid")
	i.Started, _ = Number(a, "process.start_ns")
	if v, ok := a.Get("tracecore.drill"); ok && v.Type() == pcommon.ValueTypeBool {
		i.Drill = v.Bool()
	}
	return i
}

// Fill takes from o, the same rank by another record, what i lacks.
func (i *Identity) Fill(o Identity) {
	if i.Host != "" && i.Host != o.Host || i.PID > 0 && i.PID != o.PID || i.Started != 0 && o.Started != 0 && i.Started != o.Started {
		return
	}
	for _, field := range []struct{ mine, theirs *string }{
		{&i.Host, &o.Host}, {&i.Node, &o.Node}, {&i.Pod, &o.Pod}, {&i.Container, &o.Container}, {&i.Process, &o.Process},
		{&i.Namespace, &o.Namespace}, {&i.PodName, &o.PodName}, {&i.Workload, &o.Workload},
	} {
		if *field.mine == "" {
			*field.mine = *field.theirs
		}
	}
	i.PID, i.Started = o.PID, cmp.Or(i.Started, o.Started)
}

// Record is one stall record: a process of a rank, and one of its stalls.
type Record struct {
	JobID  string // "" of ranks without one
	Domain string // of the job, "" when not known
	Run    string // start of the job, "" when not known
	Of     string // the start that it is one job with
	Job    string // JobID, or the host of such ranks, in the domain
	World  int    // ranks of the job, 0 when not known
	ID     string // of the stall, unique in its process
	Time   int64
	End    EndReason // of a stall that ended
	Moving int64     // of EventWatched: since when the job is watched, where all its ranks on the host have moved since; 0: not all have

	Identity
	Rank     int
	State    State
	Sent     int64 // when the process last sent data, 0 never
	Received int64 // and received
	Tick     int64 // of the kernel's clock: how exact both are; 0 not known
	Doing    Doing // as of this record

	Stall Stall
}

// Ended reports whether the record is of the end of a stall.
func (r *Record) Ended() bool { return r.Stall.Ended != 0 }

// Parse reads a record of that event and time; ok is false where it does not say
// whose stall it is, or when.
func Parse(event string, time int64, resource, a pcommon.Map) (r Record, ok bool) {
	r.Identity, r.Time = IdentityOf(resource, a), time
	r.Rank, ok = Rank(a, "gen_ai.training.rank")
	if !ok || r.PID <= 0 || time <= 0 {
		return r, false
	}
	r.JobID, r.World, r.ID = cmp.Or(Text(a, "gen_ai.training.job_id"), Text(a, "gen_ai.training.rendezvous")), World(a), Text(a, "nccl.socket.stall.id")
	r.Domain = Text(a, "gen_ai.training.job_domain")
	// Ranks without an id are told apart by host at least.
	r.Job = JobName(cmp.Or(r.JobID, "host "+r.Host), r.Domain)
	r.State = StateOf(a)
	r.Sent, r.Received = ago(a, "nccl.rank.last_sent_age_ns", time), ago(a, "nccl.rank.last_received_age_ns", time)
	r.Tick = tickOf(a)
	r.Doing = DoingOf(a, time)
	r.Stall = stallOf(a, time)
	switch event {
	case EventWatched:
		r.Moving = MovingSince(a, time)
	case EventEnd:
		r.Stall.Ended, r.End = time, word(a, "nccl.socket.stall.end_reason", endReasons)
	}
	return r, true
}

// MovingSince is since when the job of a record of EventWatched is watched, where all its ranks on the host have
// moved data since; 0 where not all have.
func MovingSince(a pcommon.Map, time int64) int64 { return ago(a, "nccl.socket.watched_ns", time) }

// StateOf is what the main thread does, as a record says it.
func StateOf(a pcommon.Map) State { return word(a, "nccl.rank.state", states) }

func stallOf(a pcommon.Map, time int64) Stall {
	s := Stall{
		Cause: word(a, "nccl.socket.cause", causes), Direction: word(a, "nccl.socket.direction", directions),
		Kind: word(a, "nccl.socket.kind", kinds), Error: Text(a, "nccl.socket.error"), PeerRank: Unknown,
		Local: endpoint(a, "network.local"), Peer: endpoint(a, "network.peer"),
		Sent: ago(a, "nccl.socket.last_sent_age_ns", time), Received: ago(a, "nccl.socket.last_received_age_ns", time),
		Onset: time, First: time, Last: time, Turned: time,
	}
	if rank, known := Rank(a, "nccl.peer.rank"); known {
		s.PeerRank = rank
	}
	if onset := ago(a, "nccl.socket.stall.age_ns", time); onset > 0 {
		s.Onset = onset
	}
	unread, _ := Number(a, "nccl.socket.receive_queue_bytes")
	s.Unread = max(unread, 0)
	for name, to := range map[string]*int64{
		"nccl.socket.sent_bytes": &s.Out, "nccl.socket.unacked_bytes": &s.Unacked, "nccl.socket.received_bytes": &s.In, "nccl.peer.received_bytes": &s.PeerIn,
	} {
		n, found := Number(a, name)
		if *to = n; !found || n < 0 {
			*to = Unknown
		}
	}
	return s
}

// OfRun says which start of its job the record is about, and the earlier one whose ranks live beside it, ""
// for none. Sockets of another start are those of another job, but for such. "" is not known.
func (r *Record) OfRun(run, with string) {
	r.Run, r.Of = run, cmp.Or(with, run)
	r.Job = RunName(r.Job, r.Of)
}

// RunName tells starts of one job apart.
func RunName(job, run string) string {
	if job == "" || run == "" {
		return job
	}
	return job + " begun " + run
}

// JobName tells jobs of one id apart by whose they are.
func JobName(id, domain string) string {
	if id == "" || domain == "" {
		return id
	}
	return id + " of " + domain
}

// ProcessKey names a process among hosts.
func ProcessKey(host string, pid int64) string { return host + "/" + strconv.FormatInt(pid, 10) }

// Text is a text of bounded length, "" where there is none.
func Text(m pcommon.Map, name string) string {
	v, found := m.Get(name)
	if !found || v.Type() != pcommon.ValueTypeStr {
		return ""
	}
	return Clip(v.Str())
}

// Clip cuts a text that is too long, and bytes that are no UTF-8.
func Clip(s string) string { return strings.ToValidUTF8(cut.Text(s, MaxText), "") }

// Number is a whole number.
func Number(m pcommon.Map, name string) (int64, bool) {
	if v, found := m.Get(name); found && v.Type() == pcommon.ValueTypeInt {
		return v.Int(), true
	}
	return 0, false
}

// Rank is a rank that can be one.
func Rank(m pcommon.Map, name string) (int, bool) {
	rank, found := Number(m, name)
	if !found || rank < 0 || rank > MaxRank {
		return 0, false
	}
	return int(rank), true
}

// World is the number of ranks of the job, 0 where it is not known.
func World(m pcommon.Map) int {
	if world, _ := Number(m, "gen_ai.training.world_size"); world > 0 && world <= MaxRank+1 {
		return int(world)
	}
	return 0
}

// word is one of the words that are known; another one is kept as it is.
func word[T ~string](m pcommon.Map, name string, known []T) T {
	text := Text(m, name)
	for _, one := range known {
		if text == string(one) {
			return one
		}
	}
	return T(text)
}

// ago is the moment that lies that age before the record, 0 where it has none.
func ago(m pcommon.Map, name string, time int64) int64 {
	if age, found := Number(m, name); found && age >= 0 && age < time {
		return time - age
	}
	return 0
}

// endpoint is address and port, not valid where either is not known.
func endpoint(m pcommon.Map, prefix string) netip.AddrPort {
	address, err := netip.ParseAddr(Text(m, prefix+".address"))
	port, _ := Number(m, prefix+".port")
	if err != nil || port <= 0 || port > 1<<16-1 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address.Unmap().WithZone(""), uint16(port))
}

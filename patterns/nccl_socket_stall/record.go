package ncclsocketstall

import (
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// stallAttributes are what is read of a stall record.
var stallAttributes = []string{
	"gen_ai.training.rank", "gen_ai.training.job_id", "gen_ai.training.world_size",
	"process.pid", "process.executable.name", "k8s.pod.uid", "container.id", "host.name", "k8s.node.name",
	"k8s.namespace.name", "k8s.pod.name", "k8s.workload",
	"nccl.socket.cause", "nccl.socket.direction", "nccl.socket.kind", "nccl.socket.stall.id", "nccl.socket.stall.age_ns",
	"nccl.socket.last_sent_age_ns", "nccl.socket.last_received_age_ns", "nccl.socket.receive_queue_bytes", "nccl.socket.error",
	"nccl.rank.last_sent_age_ns", "nccl.rank.last_received_age_ns", "nccl.rank.state", "nccl.rank.main_thread_cpu_share",
	"nccl.peer.rank", "network.local.address", "network.local.port", "network.peer.address", "network.peer.port",
}

// The causes of a stall, as the receiver names them.
const (
	notReading     = "not_reading"
	peerNotReading = "peer_not_reading"
	networkDown    = "network"
	connecting     = "connecting"
	waiting        = "waiting"
)

// unknown marks a number that a record did not have.
const unknown = int64(-1)

// input is one stall record.
type input struct {
	job   string
	id    string // of the stall, unique among hosts
	ended bool
	time  int64
	stall stall
	proc  proc
}

// stall is one stall of one rank process towards one peer in one direction: what
// the newest record said, since the oldest.
type stall struct {
	Proc      string `json:"p"`           // key of its process
	Cause     string `json:"c"`           //
	Receive   bool   `json:"r,omitempty"` // direction
	Kind      string `json:"k"`           //
	Local     string `json:"l"`           // address:port
	Peer      string `json:"e"`           // address:port
	PeerRank  int64  `json:"n"`           // unknown unless the peer is on the same host
	Error     string `json:"x,omitempty"` //
	Unread    int64  `json:"u,omitempty"` // bytes
	Sent      int64  `json:"s,omitempty"` // when data was last sent to the peer, 0 never
	Received  int64  `json:"v,omitempty"` // and received
	Onset     int64  `json:"o"`           // of its last progress
	First     int64  `json:"f"`           // time of the oldest record
	Last      int64  `json:"t"`           // and of the newest
	Ended     int64  `json:"d,omitempty"` // 0: it lasts
	ByAddress bool   `json:"-"`           // its peer was found by address alone
}

// proc is one rank process.
type proc struct {
	Host      string `json:"h"`
	Node      string `json:"n,omitempty"`
	PID       int64  `json:"p"`
	Rank      int64  `json:"r"`
	World     int64  `json:"w,omitempty"`
	Process   string `json:"e,omitempty"`
	Pod       string `json:"u,omitempty"`
	Container string `json:"c,omitempty"`
	Namespace string `json:"ns,omitempty"`
	PodName   string `json:"pn,omitempty"`
	Workload  string `json:"wl,omitempty"`

	First    int64   `json:"f"`           // time of the record that the next four are of: the oldest
	Sent     int64   `json:"s"`           // when it last sent anything, 0 never
	Received int64   `json:"v"`           // and received
	MainCPU  float64 `json:"m"`           // cores its main thread has used since, -1 unknown
	Last     int64   `json:"l"`           // time of the record that the state is of: the newest
	State    string  `json:"t,omitempty"` // of its main thread
	Stalls   int     `json:"-"`           // that are its own
}

// readStall reads a stall record; without host, pid or rank it says nothing.
func readStall(r *rule.Record) (input, bool) {
	a := r.Attributes
	host, pid, rank := rule.Text(r.Resource, "host.name"), number(a, "process.pid"), number(a, "gen_ai.training.rank")
	if pid <= 0 || rank < 0 || r.Time <= 0 {
		return input{}, false
	}
	ago := func(key string) int64 {
		if age := number(a, key); age >= 0 && age < r.Time {
			return r.Time - age
		}
		return 0
	}
	key := host + "/" + strconv.FormatInt(pid, 10)
	in := input{
		job: rule.Text(a, "gen_ai.training.job_id"), ended: r.Name == eventStallEnd, time: r.Time,
		stall: stall{
			Proc: key, Cause: rule.Text(a, "nccl.socket.cause"), Receive: rule.Text(a, "nccl.socket.direction") == "receive",
			Kind: rule.Text(a, "nccl.socket.kind"), Error: rule.Text(a, "nccl.socket.error"), PeerRank: number(a, "nccl.peer.rank"),
			Local: endpoint(a, "network.local"), Peer: endpoint(a, "network.peer"),
			Unread: max(number(a, "nccl.socket.receive_queue_bytes"), 0),
			Sent:   ago("nccl.socket.last_sent_age_ns"), Received: ago("nccl.socket.last_received_age_ns"),
			Onset: r.Time, First: r.Time, Last: r.Time,
		},
		proc: proc{
			Host: host, Node: rule.Text(r.Resource, "k8s.node.name"), PID: pid, Rank: rank,
			World: number(a, "gen_ai.training.world_size"), Process: rule.Text(a, "process.executable.name"),
			Pod: rule.Text(a, "k8s.pod.uid"), Container: rule.Text(a, "container.id"), First: r.Time, Last: r.Time,
			Namespace: rule.Text(a, "k8s.namespace.name"), PodName: rule.Text(a, "k8s.pod.name"), Workload: rule.Text(a, "k8s.workload"),
			Sent: ago("nccl.rank.last_sent_age_ns"), Received: ago("nccl.rank.last_received_age_ns"),
			State: rule.Text(a, "nccl.rank.state"), MainCPU: share(a, "nccl.rank.main_thread_cpu_share"),
		},
	}
	if in.job == "" { // ranks of one host at least are told apart from those of another
		in.job = "host " + host
	}
	if onset := ago("nccl.socket.stall.age_ns"); onset > 0 {
		in.stall.Onset = onset
	}
	in.id = key + "/" + rule.Text(a, "nccl.socket.stall.id")
	return in, true
}

func number(m pcommon.Map, key string) int64 {
	if n, ok := rule.Integer(m, key); ok {
		return n
	}
	return unknown
}

func share(m pcommon.Map, key string) float64 {
	v, ok := m.Get(key)
	if !ok || v.Type() != pcommon.ValueTypeDouble || !(v.Double() >= 0 && v.Double() < 1e6) {
		return -1
	}
	return v.Double()
}

// endpoint is address and port, "" when either is unknown.
func endpoint(m pcommon.Map, prefix string) string {
	address, port := rule.Text(m, prefix+".address"), number(m, prefix+".port")
	if address == "" || port <= 0 || port > 65535 {
		return ""
	}
	return net.JoinHostPort(strings.TrimPrefix(address, "::ffff:"), strconv.FormatInt(port, 10))
}

// address is the host part of an endpoint.
func address(endpoint string) string {
	if at := strings.LastIndexByte(endpoint, ':'); at > 0 {
		return endpoint[:at]
	}
	return endpoint
}

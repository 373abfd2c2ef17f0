package join

import (
	"net/netip"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// The socket-stall records of the ncclsock receiver.
const (
	EventStall    = "nccl.socket.stall"
	EventStallEnd = "nccl.socket.stall.end"
)

// says is what one stall says of its process, that which accuses nobody last.
type says uint8

const (
	saysNothing    says = iota // of a cause not known here: the process lives
	notReading                 // it does not read what has arrived
	peerNotReading             // its peer does not read what it sends
	noAnswer                   // packets to its peer are not acknowledged
	awaits                     // it waits for data of its peer
)

// parsedStall is one stall record.
type parsedStall struct {
	job     string // job id, or that of a host where the ranks have none
	named   bool   // job is a job id
	process procKey
	id      string
	at      int64
	onset   int64
	says    says
	ended   bool
	exited  bool
	stopped bool // the main thread of its process
	rank    int
	world   int
	host    Host
	local   netip.AddrPort
	peer    netip.AddrPort
	// peerRank is known where both ends are on one node, else -1.
	peerRank int
}

// procKey names a process among hosts.
type procKey struct {
	host string
	pid  int64
}

// parseStall reads a record; ok is false where it does not tell whose stall it
// is, or when.
func parseStall(resource pcommon.Resource, r plog.LogRecord) (p parsedStall, ok bool) {
	a := r.Attributes()
	p.at = int64(r.Timestamp()) //nolint:gosec // what does not fit is below zero
	rank, found := rankIn(a, "gen_ai.training.rank")
	pid, _ := whole(a, "process.pid")
	if !found || pid <= 0 || p.at <= 0 {
		return p, false
	}
	p.rank, p.host = rank, hostOf(resource.Attributes(), a)
	p.process = procKey{p.host.Name, pid}
	p.job, p.named = jobOf(a, p.host.Name)
	p.id = str(a, "nccl.socket.stall.id")
	p.world = worldOf(a)
	p.says = meaning(str(a, "nccl.socket.cause"), str(a, "nccl.socket.direction"))
	p.ended = r.EventName() == EventStallEnd
	p.exited = p.ended && str(a, "nccl.socket.stall.end_reason") == "exited"
	p.stopped = !p.ended && slices.Contains([]string{"stopped", "zombie"}, str(a, "nccl.rank.state"))
	p.local, p.peer = endpoint(a, "network.local"), endpoint(a, "network.peer")
	p.onset = p.at
	if age, found := whole(a, "nccl.socket.stall.age_ns"); found && age > 0 && age < p.at {
		p.onset -= age
	}
	if p.peerRank, found = rankIn(a, "nccl.peer.rank"); !found {
		p.peerRank = -1
	}
	return p, true
}

// jobOf is the job of a rank. Ranks without one are told apart by their host.
func jobOf(a pcommon.Map, host string) (job string, named bool) {
	if job = str(a, "gen_ai.training.job_id"); job != "" {
		return job, true
	}
	return "host " + host, false
}

func meaning(cause, direction string) says {
	switch cause {
	case "not_reading":
		return notReading
	case "peer_not_reading":
		return peerNotReading
	case "network":
		return noAnswer
	case "waiting":
		if direction == "receive" {
			return awaits
		}
	}
	return saysNothing
}

func endpoint(a pcommon.Map, prefix string) netip.AddrPort {
	address, err := netip.ParseAddr(str(a, prefix+".address"))
	port, _ := whole(a, prefix+".port")
	if err != nil || port <= 0 || port > 1<<16-1 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address.Unmap().WithZone(""), uint16(port))
}

// process is one rank process that has stalls.
type process struct {
	rank   int
	host   Host
	last   int64 // event time of its newest record
	halted int64 // since when its main thread is known to be stopped, 0: it is not
	exited int64 // when its end was seen, 0: it lives
	stalls map[string]*stall
}

// stall is one stall: from when to when, and what it said.
type stall struct {
	local, peer netip.AddrPort
	peerRank    int
	onset, last int64
	ended       int64 // 0: it lasts
	turned      int64 // time of the first record that says what it says now
	now, before says
	heard       time.Time // arrival of the newest record
}

// fading is after how long without a repetition, which comes every 10 s, a stall
// counts no more: three of them lost, and some delay.
const fading = int64(35 * time.Second)

// openAt reports whether it lasted at that time.
func (s *stall) openAt(t int64) bool {
	return s.onset <= t && (s.ended == 0 || s.ended > t) && t-s.last <= fading
}

// at is what it said at that time.
func (s *stall) at(t int64) says {
	if t < s.turned && s.before != saysNothing {
		return s.before
	}
	return s.now
}

func (p *process) haltedAt(t int64) bool { return p.halted != 0 && p.halted <= t }

// merge takes another record of the stall, of any order of arrival.
func (s *stall) merge(p *parsedStall, arrival time.Time) {
	s.heard, s.onset, s.last = arrival, min(s.onset, p.onset), max(s.last, p.at)
	switch {
	case p.ended:
		s.ended = max(s.ended, p.at)
	case p.says == s.now:
		s.turned = min(s.turned, p.at)
	case p.at == s.turned: // of two at once the one that accuses nobody
		s.now = max(s.now, p.says)
	case p.at < s.turned:
		s.before = p.says
	default:
		s.before, s.now, s.turned = s.now, p.says, p.at
	}
}

// moment is what a stall and its process say at one time.
type moment struct {
	open, halted, exited bool
	says                 says
}

func (s *stall) momentOf(p *process, t int64) moment {
	if !s.openAt(t) {
		return moment{exited: p.exited != 0 && p.exited <= t}
	}
	return moment{open: true, says: s.at(t), halted: p.haltedAt(t)}
}

// take enters what a record says of the process itself.
func (p *process) take(o *parsedStall) {
	newest := o.at >= p.last
	if newest {
		p.last, p.rank, p.host = o.at, o.rank, o.host
	}
	switch {
	case o.exited && (p.exited == 0 || o.at < p.exited):
		p.exited = o.at
	case o.stopped && (p.halted == 0 && newest || p.halted > o.at):
		p.halted = o.at
	case !o.stopped && !o.ended && newest:
		p.halted = 0
	}
}

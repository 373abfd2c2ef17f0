package ncclhang

import (
	"cmp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// eventDoes tells that the process of a rank that stands does something else than was told.
const eventDoes = "process.stack.doing"

// stackAttributes are what is read of them, beside identity and what a process does.
var stackAttributes = []string{
	"network.connection.state", "network.peer.address", "network.peer.port", "server.address", "server.port",
	"process.stack.call", "process.stack.hash", "process.stack.kernel_function", "process.stack.kernel_owner", "process.stack.mount_point", "process.stack.mount_source", "process.stack.mount_type",
	"process.stack.reason", "process.stack.state", "process.stack.still_ns", "process.stack.unread", "process.stack.wait_class", "process.stack.where",
}

// stackPlace is where the main thread of a process stands, by its stack.
type stackPlace struct {
	At       int64             `json:"t,omitempty"` // of the record, 0: none has come
	Standing bool              `json:"s,omitempty"`
	Unread   bool              `json:"u,omitempty"` // not all of it
	Class    string            `json:"c,omitempty"`
	Reason   string            `json:"r,omitempty"`
	Function string            `json:"f,omitempty"` // of the kernel
	Owner    string            `json:"o,omitempty"` // of that
	Mount    string            `json:"m,omitempty"` // that it waits for: type, source and where it is
	Storage  string            `json:"k,omitempty"` // the same as all hosts call it, "" where it is each host's own
	Hash     string            `json:"h,omitempty"`
	Where    string            `json:"w,omitempty"` // the line, of a collective where it is sent
	Call     string            `json:"a,omitempty"` // of the library in which it waits for others: all_reduce, recv
	Store    string            `json:"e,omitempty"` // address at which it waits for the other ranks of its job
	Link     string            `json:"i,omitempty"` // how its connection to that stands
	Since    int64             `json:"b,omitempty"`
	Came     int64             `json:"n,omitempty"` // before Since, where it was told for another reason first
	Left     int64             `json:"l,omitempty"` // of a rank that stands there no more: since when it had waited at the start of its job
	Kept     int64             `json:"q,omitempty"` // of an earlier record, whose word counts still: since when, and that it is overdue
	State    socketstall.State `json:"st,omitempty"`
	Doing    socketstall.Doing `json:"d,omitzero"`
}

// The words of the receiver that are read.
const (
	classCollective, classGPU     = "collective", "gpu"
	classStore                    = "store" // waits for a key that another rank writes
	classNameServer               = "name_server"
	classStorage, classData       = "storage", "data_loading"
	classOwnCode                  = "own_code" // nothing that is known
	classBackward                 = "backward" // threads of its own, whose stacks do not show what they wait for
	reasonAsleep, reasonSpins     = "asleep", "spinning"
	reasonSameCall, reasonPeerEnd = "same_call", "peer_ended"
	reasonAwaited                 = "awaited" // it does not stand: it only was in these frames at each look, while others waited
)

// stackOf reads a record of that time.
func stackOf(event string, at int64, a pcommon.Map) stackPlace {
	still, _ := whole(a, "process.stack.still_ns")
	p := stackPlace{
		At: at, Standing: event == rule.EventStack, Class: str(a, "process.stack.wait_class"), Reason: str(a, "process.stack.reason"), Function: str(a, "process.stack.kernel_function"),
		Owner: str(a, "process.stack.kernel_owner"), Hash: str(a, "process.stack.hash"), Since: at - max(0, min(still, at)), State: socketstall.StateOf(a), Doing: socketstall.DoingOf(a, at),
	}
	if unread, ok := a.Get("process.stack.unread"); ok && unread.Type() == pcommon.ValueTypeSlice {
		p.Unread = unread.Slice().Len() > 0
	}
	if letter := str(a, "process.stack.state"); p.State == "" && (letter == "T" || letter == "t") {
		p.State = socketstall.Stopped
	} else if p.State == "" && letter == "D" {
		p.State = socketstall.DiskSleep
	}
	if p.Class == classCollective || p.Class == classStore || event == eventDoes {
		p.Where, p.Call = socketstall.Clip(str(a, "process.stack.where")), socketstall.Clip(str(a, "process.stack.call"))
	}
	p.Store, p.Link = storeOf(a)
	p.Mount, p.Storage = mountOf(a)
	if p.Storage == "" && (p.Class == classStorage || p.Class == classData) && remote[p.Owner] && p.Mount == "" {
		p.Mount, p.Storage = p.Owner, p.Owner
	}
	return p
}

// remote are owners of functions of the kernel that are file systems of several hosts
// (internal/waitclass/rows.txt).
var remote = map[string]bool{"nfs": true, "lustre": true, "weka": true, "gpfs": true, "beegfs": true, "ceph": true, "cifs": true, "9p": true, "fuse": true, "gfs2": true, "ocfs2": true}

// mountOf says which file system a thread waits for. A disk of the host is another one on each.
func mountOf(a pcommon.Map) (mount, storage string) {
	kind, source, point := str(a, "process.stack.mount_type"), str(a, "process.stack.mount_source"), str(a, "process.stack.mount_point")
	if kind == "" || point == "" {
		return "", ""
	}
	mount = point + " (" + kind
	if source != "" && source != kind {
		mount += ", " + source
	}
	if mount = socketstall.Clip(mount + ")"); len(source) > 5 && source[:5] == "/dev/" {
		return mount, ""
	}
	return mount, socketstall.Clip(kind + " " + cmp.Or(source, point))
}

// stacks takes a record of the process's stack, and reports whether it changes anything. Records
// of one process may come in another order than they were made.
func (who *caller) stacks(c *callRecord) bool {
	before, s := who.stack, c.stack
	switch {
	case c.event == eventDoes && s.Hash != before.Hash && s.At > before.At: // the stack itself is to come
		who.stack.Doing, who.stack.State, who.stack.Where = s.Doing, s.State, s.Where
		who.early = s.Hash
		return false
	case c.event == eventDoes:
		if s.Hash != before.Hash || s.At < before.Doing.At || !before.Standing {
			return false
		}
		if before.Kept != 0 && before.keeps(&s) {
			return false
		}
		who.stack.Doing, who.stack.State, who.stack.Kept = s.Doing, s.State, 0
		who.stack.Where = cmp.Or(s.Where, before.Where)
	case s.At < before.At && c.event == rule.EventStackMoving && s.At >= before.Kept && before.Kept != 0: // it came there again
		who.stack.Doing.Silence, who.stack.Since, who.stack.Came, who.stack.Kept = socketstall.Usual, s.At, 0, 0
	case s.At < before.At, s.At == before.At && c.event == rule.EventStackMoving:
		return false // a later one has come before it
	default:
		if s.Standing && who.early == s.Hash && before.Doing.At > s.At {
			s.Doing, s.State, s.Where = before.Doing, before.State, cmp.Or(s.Where, before.Where)
		}
		if s.Standing && before.Standing && s.Hash == before.Hash && s.Class == before.Class && s.Reason == before.Reason && s.Since >= before.Since && before.keeps(&s) {
			at := s.Doing.At
			s.Kept, s.Since, s.Doing = cmp.Or(before.Kept, before.At), before.Since, before.Doing
			s.Doing.At = at
		}
		if came := before.came(); s.Standing && before.Standing && s.Hash == before.Hash && came < s.Since {
			s.Came = came
		}
		s.meetsAgain(&before)
		who.stack, who.early = s, ""
	}
	return !before.same(&who.stack)
}

// keeps reports whether a later record does not say that a process goes on which is overdue: an agent
// that has just begun knows no better.
func (p *stackPlace) keeps(later *stackPlace) bool {
	d := &later.Doing
	return p.Doing.Silence == socketstall.Overdue && (d.Silence == socketstall.Usual || d.Silence == "") && (d.Activity == socketstall.Idle || d.Activity == "") &&
		p.State.Halted() == later.State.Halted()
}

// came is since when it stands there, whatever it did first.
func (p *stackPlace) came() int64 { return cmp.Or(p.Came, p.Since) }

// told is when it was said last what the process does.
func (p *stackPlace) told() int64 { return max(p.At, p.Doing.At) }

// same reports whether nothing differs that anything rests on.
func (p stackPlace) same(o *stackPlace) bool {
	return p.Standing == o.Standing && p.Unread == o.Unread && p.Class == o.Class && p.Reason == o.Reason && p.Hash == o.Hash && p.Where == o.Where && p.Store == o.Store && p.Link == o.Link && p.State == o.State && p.Storage == o.Storage &&
		p.Doing.Silence == o.Doing.Silence && p.Doing.Activity == o.Doing.Activity
}

// waits reports whether the thread waits in a collective, or for its GPU.
func (p *stackPlace) waits() bool {
	return p.Standing && (p.Class == classCollective || p.Class == classGPU) && !p.State.Halted()
}

// inStore reports whether it waits for what another rank is to write into the store of the job: as one does in a
// collective, where nobody waits in a collective for it.
func (p *stackPlace) inStore() bool {
	return p.Standing && p.Class == classStore && !p.State.Halted()
}

// maxCall is how long the name of a function of the library may be to be said, in bytes.
const maxCall = 64

// calls is the function of the library that waits in a collective, "" where that is not known. A process chooses the name of its
// own functions: what is no identifier is none.
func (p *stackPlace) calls() string {
	odd := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if p.Class != classCollective || len(p.Call) > maxCall || strings.ContainsFunc(p.Call, odd) {
		return ""
	}
	return p.Call
}

// inDriver reports whether it waits for a driver, without end as far as is seen, where others wait in
// a collective or for a GPU. A wait for those sleeps so that a signal wakes it (state S), except in a
// fence of the kernel (drivers/dma-buf/dma-fence.c).
func (p *stackPlace) inDriver() bool {
	return p.waits() && p.Reason == reasonAsleep && p.State == socketstall.DiskSleep && !strings.HasPrefix(p.Function, "dma_fence")
}

// outside reports whether it stands somewhere else. Of a rank that was looked at since another
// one ended nobody knows.
func (p *stackPlace) outside() bool {
	return p.Standing && (!p.waits() || p.inDriver()) && !p.hidden() && p.Reason != reasonPeerEnd
}

// hidden reports whether it stands where nobody could read: what waits for nothing that is known
// may wait in a collective then. That it goes round in a loop, Python itself has told.
func (p *stackPlace) hidden() bool {
	unread := p.Unread && (p.Class == "" || p.Class == classOwnCode) || p.Class == classBackward
	return p.Standing && unread && p.Reason != reasonSpins && p.Reason != reasonPeerEnd && !p.State.Halted()
}

// backward reports whether it waits for the threads in which it runs backward: those wait for its GPU,
// for other ranks, or stand in code of its own.
func (p *stackPlace) backward() bool { return p.Class == classBackward && p.hidden() }

// launches reports whether it waits for the end of a child: then that is the rank.
func (p *stackPlace) launches() bool { return len(p.Function) >= 7 && p.Function[:7] == "do_wait" }

// serves reports whether it waits for what may come: a client, or a timer of its own.
func (p *stackPlace) serves() bool {
	switch p.Function {
	case "do_epoll_wait", "ep_poll", "do_select", "inet_csk_accept", "inet_csk_wait_for_connect":
		return p.Class != classStorage && p.Class != classData && p.Class != "compiling"
	}
	return false
}

// does is what a rank does that stands outside. Since waited somebody waits for it all the time, 0:
// that is not known. A rank that was in the same call at each look may have left it between two:
// the slowest rank of a healthy job is always found so, and the others in a collective, though
// not in the same one.
func (p *stackPlace) does(now, waited int64) doings {
	switch {
	case p.State.Halted() || p.Reason == reasonSpins || p.Doing.Silence == socketstall.Overdue:
		return stuck
	case p.Reason == reasonAwaited && p.Doing.Silence != socketstall.Long, p.Reason == reasonSameCall && waited == 0:
		return acting
	case p.Reason == reasonSameCall && now-max(p.Since, waited) >= int64(tooFarTime):
		return stuck
	case p.Reason == reasonSameCall || p.Doing.Silence == socketstall.Long:
		return working
	case p.Doing.Silence == socketstall.Usual:
		return acting
	}
	return untold
}

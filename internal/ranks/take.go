package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// exit notes the end of a rank. A child of a rank ends nothing.
func (r *rank) exit(of *run.Sighting, at int64, a pcommon.Map) {
	if inherited, ok := a.Get("process.exit.inherited_identity"); ok && inherited.AsString() == "true" {
		return
	}
	if of.PID > 0 && Outermost(a) != of.PID {
		return
	}
	r.ended, r.how = at, Ending(a)
	r.stalls, r.blocks = nil, nil
}

// Unseen is how a rank ended that was not there any more when its agent began.
const Unseen = "while no agent watched"

// gone notes that a rank ended while no agent ran on its host, unless it runs again.
func (r *rank) gone(at int64, a pcommon.Map) {
	if rule.Text(a, "process.gone.again") == "true" || r.ended > 0 {
		return
	}
	r.ended, r.unseen = at, true
	r.stalls, r.blocks = nil, nil
}

// Outermost is the process whose end a process.exit record tells: a wrapper, where that passed on
// how its child ended.
func Outermost(a pcommon.Map) int64 {
	pid, _ := rule.Integer(a, "process.pid")
	wrapper, _ := rule.Integer(a, "process.exit.wrapper.pid")
	return cmp.Or(wrapper, pid)
}

// Ending is how the process of a process.exit record ended: the name of a signal as SIGKILL, or
// "exit code 3"; "" for a success.
func Ending(a pcommon.Map) string {
	if name := rule.Text(a, "process.exit.signal_name"); name != "" {
		return name
	}
	if code, _ := rule.Integer(a, "process.exit.code"); code != 0 {
		return fmt.Sprintf("exit code %d", code)
	}
	return ""
}

// stands notes where the main thread is.
func (r *rank) stands(at int64, a pcommon.Map) {
	if at < r.stack.at {
		return
	}
	r.stack = stack{
		at: at, where: rule.Text(a, "process.stack.where"), waits: rule.Text(a, "process.stack.wait_class"),
		function: rule.Text(a, "process.stack.kernel_function"), hash: rule.Text(a, "process.stack.hash"),
	}
	if r.stack.where == "" {
		r.stack.where = codeOf(a)
	}
	if unread, ok := a.Get("process.stack.unread"); ok && unread.Type() == pcommon.ValueTypeSlice && unread.Slice().Len() > 0 && r.stack.hash == "" {
		r.stack.unread = socketstall.Clip(unread.Slice().At(0).AsString())
	}
}

// codeOf is the same place by its function, file and line.
func codeOf(a pcommon.Map) string {
	function, file, line := rule.Text(a, "code.function.name"), rule.Text(a, "code.file.path"), rule.Text(a, "code.line.number")
	if function == "" {
		return ""
	}
	file = file[strings.LastIndexByte(file, '/')+1:]
	return strings.TrimSpace(strings.Trim(file+":"+line, ":") + " in " + function)
}

// stall notes a connection of a rank that stands still, or goes on. What a repeat says of
// the process, the first of its moment has said.
func (r *rank) stall(event string, at int64, resource, a pcommon.Map) {
	id := socketstall.Text(a, "nccl.socket.stall.id")
	where := slices.IndexFunc(r.stalls, func(s stall) bool { return s.id == id })
	switch {
	case r.ended > 0:
		return
	case event == socketstall.EventEnd:
		if where >= 0 && at >= r.stalls[where].last {
			r.stalls = slices.Delete(r.stalls, where, where+1)
		}
		return
	case where >= 0:
		if r.stalls[where].last = max(at, r.stalls[where].last); at <= r.doing.at {
			return
		}
	}
	told, ok := socketstall.Parse(event, at, resource, a)
	if !ok {
		return
	}
	if where < 0 && len(r.stalls) < mostStalls {
		r.stalls = append(r.stalls, stall{
			id: told.ID, since: told.Stall.Onset, last: at, peerRank: told.Stall.PeerRank, peer: told.Stall.Peer,
			what: strings.Trim(string(told.Stall.Direction)+", "+string(told.Stall.Cause), ", "),
		})
	}
	if at >= r.doing.at {
		r.doing = doing{
			at: at, pid: told.PID, process: told.Process, thread: string(told.State), activity: string(told.Doing.Activity),
			syscall: told.Doing.Syscall, channel: told.Doing.Channel, file: told.Doing.File, sent: told.Sent, received: told.Received,
		}
	}
}

// blockKey names a mount of a machine.
func blockKey(resource, a pcommon.Map) string {
	device := rule.Text(a, "fuse.device")
	if device == "" {
		device = rule.Text(a, "fuse.mount.point")
	}
	return rule.Text(resource, "host.name") + "\x00" + device
}

// block notes a mount that does not answer the rank of the record and others of its job.
func (b *Book) block(j *job, of *run.Sighting, at int64, resource, a pcommon.Map) {
	age, _ := rule.Integer(a, "fuse.stall.age_ns")
	what := rule.Text(a, "fuse.opcode")
	if rule.Text(a, "fuse.stall.kind") == "fault" {
		what = "page fault"
	}
	one := block{key: blockKey(resource, a), mount: rule.Text(a, "fuse.mount.point"), what: what, since: at - min(max(age, 0), at), last: at}
	blocked := []int{of.Rank}
	if list, ok := a.Get("fuse.stall.ranks"); ok && list.Type() == pcommon.ValueTypeSlice {
		for _, rank := range list.Slice().All() {
			if n := rank.Int(); n >= 0 && n <= socketstall.MaxRank {
				blocked = append(blocked, int(n))
			}
		}
	}
	for _, rank := range blocked {
		if r := j.ranks[rank]; r != nil && r.ended == 0 {
			r.blocked(one)
		}
	}
}

func (r *rank) blocked(by block) {
	for i := range r.blocks {
		if old := &r.blocks[i]; old.key == by.key {
			old.last, old.what = max(old.last, by.last), by.what
			return
		}
	}
	if len(r.blocks) < mostBlocks {
		r.blocks = append(r.blocks, by)
	}
}

// unblock notes that a mount answers.
func (b *Book) unblock(key string) {
	for _, j := range b.jobs {
		for _, r := range j.ranks {
			left := slices.DeleteFunc(r.blocks, func(o block) bool { return o.key == key })
			if len(left) != len(r.blocks) {
				r.blocks, j.told.stale = left, true
			}
		}
	}
}

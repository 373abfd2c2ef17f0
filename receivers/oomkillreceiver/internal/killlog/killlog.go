// Package killlog reads OOM kills from the lines of a saved kernel log.
package killlog

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/oomkill"
)

// The lines of a report, of which the kernel may write the last one alone: the
// others are limited in rate (mm/oom_kill.c, oom_kill_process). Compared with the format
// strings of Linux 6.1 and 6.12, a report of 6.18, and the last line of 5.10 and 7.2.
//
//	python invoked oom-killer: gfp_mask=…           dump_header
//	memory: usage 8kB, limit 8kB, failcnt 3          mem_cgroup_print_oom_meminfo
//	oom-kill:constraint=…,task=python,pid=42,uid=0   dump_oom_summary
//	Tasks in /a are going to be killed due to …      mem_cgroup_print_oom_group, behind the first kill
//	Memory cgroup out of memory: Killed process 42   __oom_kill_process
//
// A name is what a process calls itself: it may hold brackets, commas and blanks.
var (
	invoked = regexp.MustCompile(`^(.{1,64}) invoked oom-killer: gfp_mask=`)
	memory  = regexp.MustCompile(`^memory: usage (\d{1,19})kB, limit (\d{1,19})kB, failcnt (\d{1,19})$`)
	summary = regexp.MustCompile(`^oom-kill:constraint=CONSTRAINT_[A-Z_]+,.*?(?:,oom_memcg=(/.*?)|,global_oom),task_memcg=(/.*?),task=.*,pid=(\d{1,10}),uid=`)
	group   = regexp.MustCompile(`^Tasks in .* are going to be killed due to memory\.oom\.group set$`)
	killed  = regexp.MustCompile(`^(Memory cgroup out of memory|Out of memory)(?: \([a-z_]+\))?: Killed process (\d{1,10}) \((.{0,64})\) ` +
		`total-vm:(\d{1,19})kB, anon-rss:(\d{1,19})kB, file-rss:(\d{1,19})kB, shmem-rss:(\d{1,19})kB, UID:(\d{1,10}) pgtables:(\d{1,19})kB oom_score_adj:(-?\d{1,4})`)
)

const (
	// longestReport is how long the lines of one report may take: a slow console
	// holds up the kernel with every task that it lists.
	longestReport = 5 * time.Minute
	// betweenKills is how long after each other the members of one cgroup are
	// killed.
	betweenKills = time.Second
	// noLimit is less than what the kernel prints where nothing limits memory
	// (PAGE_COUNTER_MAX, 9007199254740988kB), and more than any machine has.
	noLimit = 1 << 52
)

// Reader puts together the lines of one machine's log. The zero value is ready;
// it holds one report.
type Reader struct{ report report }

// report is what the lines before a kill say. The kernel writes one at a time
// (oom_lock).
type report struct {
	at           time.Time // of its last line
	trigger      string
	limit, usage uint64 // bytes
	failures     uint64
	summarized   bool // what follows is known
	pid          uint32
	cgroup       string
	limitCgroup  string
	ended        bool // its victim was killed
	group        bool // the rest of its victim's cgroup is being killed
}

// Line takes in the next line. The event is what it says of a kill; what a log
// cannot tell is zero: parent, swap, and the process (not the thread) that asked
// for memory.
func (r *Reader) Line(at time.Time, text string) (e oomkill.Event, ok bool) {
	switch {
	case strings.Contains(text, "invoked oom-killer: "):
		if m := invoked.FindStringSubmatch(text); m != nil {
			r.report = report{at: at, trigger: m[1]}
		}
	case strings.HasPrefix(text, "memory: usage "):
		r.memory(at, text)
	case strings.HasPrefix(text, "oom-kill:constraint="):
		r.summary(at, text)
	case strings.HasPrefix(text, "Tasks in "):
		if r.report.ended && r.report.lasts(at, betweenKills) && group.MatchString(text) {
			r.report.group, r.report.at = true, at
		}
	case strings.HasPrefix(text, "Memory cgroup out of memory"), strings.HasPrefix(text, "Out of memory"):
		return r.kill(at, text)
	}
	return oomkill.Event{}, false
}

func (p *report) lasts(at time.Time, most time.Duration) bool {
	return !p.at.IsZero() && !at.Before(p.at) && at.Sub(p.at) <= most
}

func (r *Reader) memory(at time.Time, text string) {
	m := memory.FindStringSubmatch(text)
	if m == nil || r.report.ended || !r.report.lasts(at, longestReport) {
		return
	}
	usage, limit := kilobytes(m[1]), kilobytes(m[2])
	if limit == 0 {
		return
	}
	r.report.usage, r.report.limit, r.report.failures, r.report.at = usage, limit, number(m[3]), at
}

func (r *Reader) summary(at time.Time, text string) {
	m := summary.FindStringSubmatch(text)
	if m == nil {
		return
	}
	if r.report.ended || !r.report.lasts(at, longestReport) { // the lines before it are missing
		r.report = report{}
	}
	r.report.at, r.report.summarized = at, true
	r.report.limitCgroup, r.report.cgroup, r.report.pid = m[1], m[2], uint32(number(m[3]))
}

// kill reads the line of the kill itself, with the report that it ends.
func (r *Reader) kill(at time.Time, text string) (oomkill.Event, bool) {
	m := killed.FindStringSubmatch(text)
	if m == nil {
		return oomkill.Event{}, false
	}
	e := oomkill.Event{
		Time: at, PID: uint32(number(m[2])), Comm: m[3],
		TotalVMBytes: kilobytes(m[4]), AnonRSSBytes: kilobytes(m[5]), FileRSSBytes: kilobytes(m[6]), ShmemRSSBytes: kilobytes(m[7]),
		UID: uint32(number(m[8])), PageTablesBytes: kilobytes(m[9]), OOMScoreAdj: score(m[10]),
		Constraint: oomkill.ConstraintNode,
	}
	if m[1] != "Out of memory" {
		e.Constraint = oomkill.ConstraintCgroup
	}
	r.attribute(&e)
	return e, e.PID != 0
}

// attribute adds what the report says of a kill, if it is this kill's.
func (r *Reader) attribute(e *oomkill.Event) {
	p := &r.report
	switch {
	case p.group && p.lasts(e.Time, betweenKills):
	case !p.ended && p.lasts(e.Time, longestReport) && (!p.summarized || p.pid == e.PID):
	default:
		*p = report{}
		return
	}
	e.TriggerComm = p.trigger
	if e.Constraint == oomkill.ConstraintCgroup {
		e.LimitCgroup, e.LimitBytes, e.UsageBytes, e.FailureCount = p.limitCgroup, p.limit, p.usage, p.failures
	}
	if p.pid == e.PID { // others of the group may be in cgroups below
		e.CgroupPath = p.cgroup
	}
	p.ended, p.at = true, e.Time
}

// number reads digits; what is beyond 64 bits is as little believed as zero.
func number(digits string) uint64 {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// kilobytes reads a size in bytes, 0 where it is none.
func kilobytes(digits string) uint64 {
	n := number(digits)
	if n > noLimit {
		return 0
	}
	return n << 10
}

// score reads oom_score_adj, which lies between -1000 and 1000.
func score(digits string) int16 {
	n, err := strconv.ParseInt(digits, 10, 16)
	if err != nil {
		return 0
	}
	return int16(n)
}

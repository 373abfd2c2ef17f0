package ncclhang

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// joinUnderTest is shown records as a Host shows them.
type joinUnderTest struct{ *Join }

// settled is after how long a run that never gets quiet is judged.
var settled = longestSettle * DefaultOptions.Settle

func newJoin(o Options) joinUnderTest { return joinUnderTest{New(o)} }

func (j joinUnderTest) Add(logs plog.Logs, now time.Time) plog.Logs {
	host := rule.Host{Detector: Detector(j.options), Algorithm: j.Join}
	return host.Logs(logs, now.UnixNano())
}

func (j joinUnderTest) Advance(now time.Time) []Round { return j.rounds(now.UnixNano()) }

// Flush joins whatever waits.
func (j joinUnderTest) Flush() []Round {
	var rounds []Round
	for due := j.Due(); due != 0; due = j.Due() {
		rounds = append(rounds, j.rounds(due)...)
	}
	return rounds
}

// written is when the dumps of a test are written, a minute after the last
// entry.
var written = time.Date(2026, 11, 21, 5, 10, 0, 0, time.UTC)

// job is a job under test: what each rank did in each group.
type job struct {
	name   string
	domain string // "" where the records say none
	world  int
	at     time.Time
	// waited is how long the last entries are old when the dumps are written.
	waited time.Duration
	said   []said
}

// said is one record.
type said struct {
	rank        int
	group, desc string
	members     string
	first       int64
	did         []string // signatures of the collectives, in order
	finished    int      // so many of them
	state       string   // of the first unfinished
	p2p         []string // unfinished, as "recv 0<-1 [[4]]"
	host        string
	noCode      bool
}

func newJob(world int) *job {
	return &job{name: "llm", world: world, at: written, waited: time.Minute}
}

// does records that ranks did the same in the default group and finished so many.
func (j *job) does(finished int, did []string, ranks ...int) *job {
	for _, rank := range ranks {
		j.said = append(j.said, said{rank: rank, group: "0", desc: "default_pg", members: fmt.Sprintf("0-%d", j.world-1), first: 1, did: did, finished: finished})
	}
	return j
}

func (j *job) in(s said) *job {
	if s.first == 0 {
		s.first = 1
	}
	j.said = append(j.said, s)
	return j
}

func (j *job) logs() plog.Logs {
	logs := plog.NewLogs()
	for i := range j.said {
		j.record(logs.ResourceLogs().AppendEmpty(), &j.said[i])
	}
	return logs
}

func (j *job) record(resource plog.ResourceLogs, s *said) {
	host := s.host
	if host == "" {
		host = fmt.Sprintf("node-%d", s.rank)
	}
	resource.Resource().Attributes().PutStr("host.name", host)
	r := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName(eventDump)
	r.SetTimestamp(pcommon.NewTimestampFromTime(j.at))
	a := r.Attributes()
	a.PutInt("nccl.fr.rank", int64(s.rank))
	if j.name != "" {
		a.PutStr("gen_ai.training.job_id", j.name)
	}
	if j.domain != "" {
		a.PutStr("gen_ai.training.job_domain", j.domain)
	}
	a.PutStr("nccl.fr.run", "/fr/rank_")
	a.PutStr("nccl.fr.pg_id", s.group)
	a.PutStr("nccl.fr.pg_desc", s.desc)
	if s.members != "" {
		a.PutStr("nccl.fr.pg_ranks", s.members)
	}
	a.PutInt("nccl.fr.entries", int64(len(s.did)+len(s.p2p)))
	a.PutInt("nccl.fr.newest_unix_nano", j.at.Add(-j.waited).UnixNano())
	j.history(a, s)
	j.operations(a, s)
}

func (j *job) history(a pcommon.Map, s *said) {
	if len(s.did) == 0 {
		return
	}
	var hashes []byte
	words := a.PutEmptySlice("nccl.fr.signatures")
	for _, signature := range s.did {
		h := fnv.New32a()
		_, _ = h.Write([]byte(signature))
		hashes = binary.LittleEndian.AppendUint32(hashes, max(h.Sum32(), 1))
		words.AppendEmpty().SetStr(signature)
	}
	a.PutInt("nccl.fr.history_first_seq_id", s.first)
	a.PutStr("nccl.fr.history", base64.StdEncoding.EncodeToString(hashes))
}

func (j *job) operations(a pcommon.Map, s *said) {
	list := a.PutEmptySlice("nccl.fr.operations")
	for i := s.finished; i < len(s.did) && i < s.finished+16; i++ {
		state := "scheduled"
		if i == s.finished && s.state != "" {
			state = s.state
		}
		j.operation(list.AppendEmpty().SetEmptyMap(), s, i, state, false)
	}
	for _, p := range s.p2p {
		j.sendOrReceive(list.AppendEmpty().SetEmptyMap(), p)
	}
	if s.finished > 0 {
		j.operation(list.AppendEmpty().SetEmptyMap(), s, s.finished-1, "completed", true)
	}
}

func (j *job) operation(m pcommon.Map, s *said, i int, state string, finished bool) {
	var name string
	_, _ = fmt.Sscan(s.did[i], &name)
	m.PutStr("name", "nccl:"+name)
	m.PutBool("p2p", false)
	m.PutInt("seq_id", s.first+int64(i))
	m.PutStr("signature", s.did[i])
	m.PutStr("state", state)
	m.PutBool("finished", finished)
	m.PutInt("created_unix_nano", j.at.Add(-j.waited).UnixNano())
	if !s.noCode {
		m.PutEmptySlice("code").AppendEmpty().SetStr(fmt.Sprintf("step (train.py:%d)", i+1))
	}
}

func (j *job) sendOrReceive(m pcommon.Map, text string) {
	var kind, ends, sizes string
	var a, b int
	_, _ = fmt.Sscan(text, &kind, &ends, &sizes)
	m.PutStr("name", "nccl:"+kind+" "+ends)
	m.PutBool("p2p", true)
	m.PutInt("seq_id", 1)
	if kind == "send" {
		_, _ = fmt.Sscanf(ends, "%d->%d", &a, &b)
		m.PutInt("source", int64(a))
		m.PutInt("destination", int64(b))
	} else {
		_, _ = fmt.Sscanf(ends, "%d<-%d", &a, &b)
		m.PutInt("source", int64(b))
		m.PutInt("destination", int64(a))
	}
	m.PutStr("input_sizes", sizes)
	m.PutStr("output_sizes", sizes)
	m.PutStr("state", "scheduled")
	m.PutBool("finished", false)
	m.PutInt("created_unix_nano", j.at.Add(-j.waited).UnixNano())
	m.PutEmptySlice("code").AppendEmpty().SetStr("pipe (train.py:99)")
}

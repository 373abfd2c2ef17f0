//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/tracecoreai/tracecore/bpf/pin"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// inherit lets what the probe has in the kernel outlive this process, and takes up what
// earlier ones left: first which ranks lived, then what became of them.
func (t *Tracker) inherit() {
	if t.opts.Pin == "" {
		return
	}
	r, ok := t.source.(*ring)
	if !ok || !r.withExits {
		t.report.Away.Err = fmt.Errorf("pin %s: the hook in use tells no ends of processes", Name)
		return
	}
	var err error
	if t.memory, err = newMemory(maxRemembered); err != nil {
		t.report.Away.Err = fmt.Errorf("pin %s: %w", Name, err)
		return
	}
	t.late = true
	kept, away, err := pin.Keep(t.opts.Pin, Name, r.layout, r.set(t.memory.ranks), pin.Heir{Remember: t.remember, Read: t.handleLate})
	t.onExits(t.behind.all())
	t.late = false
	if r.kept = kept; kept == nil {
		t.memory = t.memory.close()
	}
	t.report.Away, t.since = away.Told(kept != nil, err), away.Seen()
}

func (r *ring) set(memory *ebpf.Map) pin.Set {
	return pin.Set{Ring: r.maps.Events, Dropped: r.maps.Dropped, Memory: memory, Links: r.links}
}

func (t *Tracker) handleLate(raw []byte) {
	var e event
	if err := decode(raw, &e); err != nil {
		t.invalid.Add(1)
		return
	}
	t.handle(&e)
}

// remember enters the ranks that lived when the last agent ended. Those that are dead by
// now are ended by the records that follow, or by the scan.
func (t *Tracker) remember(ranks *ebpf.Map) {
	var all []facts
	var key rankKey
	var value []byte
	for entries := ranks.Iterate(); len(all) < maxRemembered && entries.Next(&key, &value); {
		if f, err := parseRemembered(value); err == nil {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b facts) int { return cmp.Compare(a.startNS, b.startNS) })
	for _, f := range all {
		parent := t.parent(f.parentPID, f.startNS, maxAncestors)
		t.mu.Lock()
		t.leads(t.put(f, parent), life{f.led.PID, wall(f.led.StartNS)})
		t.mu.Unlock()
	}
}

// memory is a map of the kernel that says which ranks live. It is pinned beside the ring:
// an end names a pid alone, and whose rank it was would be forgotten with this process.
// It has no lock. A nil memory remembers nothing.
type memory struct {
	ranks *ebpf.Map
	order fairlru.List[rankKey]
	at    map[rankKey]*fairlru.Element[rankKey]
	most  int
	lost  uint64 // did not fit
}

// maxRemembered is how many ranks of one host are remembered; a node has 8 or 16. Beyond it
// the user that has most gives way. Each takes 2 KiB of the kernel while it lives.
const (
	maxRemembered   = 1024
	rememberedBytes = 2048
)

// rankKey is the pid of a rank's outermost process and its start on the boot clock.
type rankKey struct {
	PID, Pad uint32
	StartNS  uint64
}

// remembered is a rank as JSON, in the map.
type remembered struct {
	PID, ParentPID                    uint32
	StartNS                           uint64
	Comm                              string
	Rank, LocalRank, WorldSize        int
	Job, Addr                         string
	Port, Attempt                     int
	Drill                             bool
	Domain, Container, Pod, Name, Dir string
	Trace                             string `json:",omitempty"` // as a traceparent
	Meet                              string `json:",omitempty"` // the job of a rank that is known by its calls
	Launcher                          string `json:",omitempty"` // whose mark it has
	Wrapper                           uint32 `json:",omitempty"` // its RankPID, where that is another process
	WrapperNS                         uint64 `json:",omitempty"` // and its start
	Script                            string `json:",omitempty"` // as in record
}

func newMemory(most int) (*memory, error) {
	ranks, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "ranks", Type: ebpf.Hash, KeySize: 16, ValueSize: rememberedBytes, MaxEntries: uint32(most), Flags: bpfNoPrealloc,
	})
	if err != nil {
		return nil, err
	}
	return &memory{ranks: ranks, at: map[rankKey]*fairlru.Element[rankKey]{}, most: most}, nil
}

// bpfNoPrealloc is BPF_F_NO_PREALLOC (include/uapi/linux/bpf.h): an entry takes memory once
// it is there.
const bpfNoPrealloc = 1

// close forgets it; what is pinned stays.
func (m *memory) close() *memory {
	if m != nil {
		_ = m.ranks.Close() // each entry was written by its own call
	}
	return nil
}

func (m *memory) unkept() uint64 {
	if m == nil {
		return 0
	}
	return m.lost
}

// keep remembers the outermost process of a rank.
func (m *memory) keep(r *record) {
	if m == nil || !r.IsRank() || r.Inherited || !r.alive() {
		return
	}
	key := rankKey{PID: r.PID, StartNS: r.startNS}
	value, err := r.remembered()
	if err != nil {
		m.lost++
		return
	}
	if m.at[key] == nil {
		if len(m.at) == m.most {
			victim, _ := m.order.Victim()
			m.forget(victim.Value)
			m.lost++
		}
		m.at[key] = m.order.Add(key, fairlru.Some, r.Domain, cmp.Or(r.PodUID, r.ContainerID))
	}
	if err := m.ranks.Put(key, value); err != nil {
		m.lost++
	}
}

func (m *memory) forget(key rankKey) {
	m.order.Remove(m.at[key])
	delete(m.at, key)
	if err := m.ranks.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		m.lost++
	}
}

// prune forgets what is no living rank any more.
func (m *memory) prune(t *table) {
	if m == nil {
		return
	}
	for key := range m.at {
		if r := t.exact(key.PID, key.StartNS); r == nil || !r.alive() || !r.IsRank() || r.Inherited {
			m.forget(key)
		}
	}
}

var errTooLong = errors.New("too long to be remembered")

// remembered leaves out the path of the cgroup, and the script, where there is no room for them.
func (r *record) remembered() ([]byte, error) {
	what := remembered{
		PID: r.PID, ParentPID: r.ParentPID, StartNS: r.startNS, Comm: r.Comm,
		Rank: r.Rank, LocalRank: r.LocalRank, WorldSize: r.WorldSize, Job: r.JobID, Addr: r.MasterAddr, Port: r.MasterPort,
		Attempt: r.Attempt, Drill: r.Drill, Domain: r.Domain, Container: r.ContainerID, Pod: r.PodUID, Name: r.podName, Dir: r.CgroupPath,
		Trace: r.Trace.String(), Launcher: r.launcher,
	}
	if r.byCalls {
		what.Meet = r.Rendezvous
	}
	if r.Wrapped {
		what.Wrapper, what.WrapperNS = r.RankPID, bootOf(r.RankStart)
	}
	what.Script = r.script
	text, err := json.Marshal(what)
	if err == nil && len(text) > rememberedBytes {
		what.Dir, what.Script = "", ""
		text, err = json.Marshal(what)
	}
	if err != nil || len(text) > rememberedBytes {
		return nil, errors.Join(err, errTooLong)
	}
	return append(text, make([]byte, rememberedBytes-len(text))...), nil
}

func parseRemembered(value []byte) (facts, error) {
	var what remembered
	text, _, _ := bytes.Cut(value, []byte{0})
	if err := json.Unmarshal(text, &what); err != nil {
		return facts{}, fmt.Errorf("read which ranks lived: %w", err)
	}
	trace, _ := parseTraceparent([]byte(what.Trace)) // of a rank that has none, ""
	led := &Born{what.PID, what.StartNS}
	if what.Wrapper != 0 {
		led = &Born{what.Wrapper, what.WrapperNS}
	}
	return facts{
		led: led, script: what.Script, pid: what.PID, parentPID: what.ParentPID, startNS: what.StartNS, comm: what.Comm, drill: what.Drill,
		launch: launch{
			rank: what.Rank, localRank: what.LocalRank, worldSize: what.WorldSize, jobID: what.Job,
			masterAddr: what.Addr, masterPort: what.Port, attempt: what.Attempt, trace: trace,
			rendezvous: what.Meet, byCalls: what.Meet != "", launcher: what.Launcher,
		},
		home: home{membership{Path: what.Dir, ContainerID: what.Container, PodUID: what.Pod}, what.Domain, what.Name},
	}, nil
}

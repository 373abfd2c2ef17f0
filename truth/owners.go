//go:build linux

package main

import (
	"regexp"
	"strconv"
	"sync"

	"github.com/tracecoreai/tracecore/truth/judge"
)

// Whom a statement is about, if not a lane.
const (
	nobody   = -1 // it names no process, job, mount or GPU: it can be about any lane
	somebody = -2 // another process of this machine: it is counted and not judged
)

// owners tell which lane a statement is about.
type owners struct {
	mu   sync.Mutex     // guards what follows
	pids map[int]int    // lanes by the processes that they started
	ids  map[string]int // lanes by what their jobs are called
	far  map[string]bool
}

func newOwners() *owners {
	return &owners{pids: map[int]int{}, ids: map[string]int{}, far: map[string]bool{}}
}

func (o *owners) process(pid, lane int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pids[pid] = lane
}

func (o *owners) job(id string, lane int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids[id] = lane
}

// others is how many verdicts were about other processes of this machine.
func (o *owners) others() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.far)
}

// Mounts and cgroups have the number of their lane in their names.
var (
	laneOfMount  = regexp.MustCompile(`/mnt/data(\d+)`)
	laneOfCgroup = regexp.MustCompile(`/truth-(\d+)-`)
)

// of says whom a statement is about. A process id is the weakest name: it comes again.
func (o *owners) of(l *judge.Line) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for field, named := range map[string]*regexp.Regexp{"mount": laneOfMount, "cgroup": laneOfCgroup} {
		if found := named.FindStringSubmatch(l.Culprit[field]); found != nil {
			lane, _ := strconv.Atoi(found[1]) // digits
			return lane
		}
	}
	if lane, known := o.ids[l.Culprit["job"]]; known {
		return lane
	}
	pid, _ := strconv.Atoi(l.Culprit["pid"]) // 0: it names none
	if lane, known := o.pids[pid]; known {
		return lane
	}
	if pid == 0 && l.Culprit["job"] == "" && l.Culprit["mount"] == "" && l.Culprit["gpu"] == "" {
		return nobody
	}
	o.far[l.ID] = true
	return somebody
}

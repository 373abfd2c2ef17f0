package engine

import (
	"container/heap"
	"slices"
)

// timed is what can ask to be looked at when event time reaches a moment.
type timed interface {
	due() *int64    // the moment it waits for, 0 when none
	fire(e *Engine) // called then; may schedule itself again
}

// task is one wait. It is stale when its owner meanwhile waits for another
// moment.
type task struct {
	at    int64
	seq   uint64
	owner timed
}

// tasks is a heap of waits, earliest first.
type tasks []task

func (t tasks) Len() int { return len(t) }

func (t tasks) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].seq < t[j].seq
}

func (t tasks) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push is for container/heap.
func (t *tasks) Push(x any) { *t = append(*t, x.(task)) }

// Pop is for container/heap.
func (t *tasks) Pop() any {
	last := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = task{}
	*t = (*t)[:len(*t)-1]
	return last
}

// schedule has owner looked at when event time reaches at. An earlier wait
// stays: its owner then finds nothing to do and asks again.
func (e *Engine) schedule(owner timed, at int64) {
	due := owner.due()
	if *due != 0 && *due <= at {
		return
	}
	*due = at
	e.seq++
	heap.Push(&e.tasks, task{at: at, seq: e.seq, owner: owner})
	if len(e.tasks) >= e.tasksMost {
		e.tasks.compact()
		e.tasksMost = max(1024, 2*len(e.tasks))
	}
}

// compact drops stale tasks, which would otherwise hold evicted owners until
// their time comes. The order of the others is total, so it stays.
func (t *tasks) compact() {
	*t = slices.DeleteFunc(*t, func(one task) bool { return *one.owner.due() != one.at })
	heap.Init(t)
}

// run fires what is due at now.
func (t *tasks) run(e *Engine, now int64) bool {
	ran := false
	for len(*t) > 0 && (*t)[0].at <= now {
		next := heap.Pop(t).(task)
		if due := next.owner.due(); *due == next.at {
			*due = 0
			next.owner.fire(e)
			ran = true
		}
	}
	return ran
}

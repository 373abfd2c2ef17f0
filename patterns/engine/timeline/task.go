package timeline

import (
	"container/heap"
	"slices"
)

// Waiter is what can ask to be called when event time reaches a moment.
type Waiter interface {
	Wait() *int64 // the moment it waits for, 0 for none; the time line writes it
	Fire()        // called then; may wait again
}

// task is one wait. It is stale when its owner meanwhile waits for another
// moment.
type task struct {
	at    int64
	seq   uint64
	owner Waiter
}

// tasks are waits, earliest first.
type tasks struct {
	heap taskHeap
	seq  uint64 // makes equal times ordered
	most int    // tasks at which the stale ones are dropped
}

type taskHeap []task

func (h taskHeap) Len() int { return len(h) }

func (h taskHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h taskHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *taskHeap) Push(x any) { *h = append(*h, x.(task)) }

// Pop is for container/heap.
func (h *taskHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = task{}
	*h = (*h)[:len(*h)-1]
	return last
}

// Call has owner called when event time reaches at. An earlier wait stays: its
// owner then finds nothing to do and asks again.
func (t *Timeline) Call(owner Waiter, at int64) { t.tasks.add(owner, at) }

func (t *tasks) add(owner Waiter, at int64) {
	wait := owner.Wait()
	if *wait != 0 && *wait <= at {
		return
	}
	*wait = at
	t.seq++
	heap.Push(&t.heap, task{at: at, seq: t.seq, owner: owner})
	if len(t.heap) >= t.most {
		t.compact()
		t.most = max(1024, 2*len(t.heap))
	}
}

// compact drops stale tasks, which would otherwise hold evicted owners until
// their time comes. The order of the others is total, so it stays.
func (t *tasks) compact() {
	t.heap = slices.DeleteFunc(t.heap, func(one task) bool { return *one.owner.Wait() != one.at })
	heap.Init(&t.heap)
}

// run calls all that waited for a moment up to now.
func (t *tasks) run(now int64) bool {
	ran := false
	for len(t.heap) > 0 && t.heap[0].at <= now {
		next := heap.Pop(&t.heap).(task)
		if wait := next.owner.Wait(); *wait == next.at {
			*wait = 0
			next.owner.Fire()
			ran = true
		}
	}
	return ran
}

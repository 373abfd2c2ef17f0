package outbox

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// entry is a batch that waits.
type entry[T any] struct {
	batch T
	size  int
	owner owner
	taken func() // may be nil
}

// owner is whose room a batch takes: that of its trust and of the user, job or pods that
// it is about, as the kernel tells them. A name that a process chooses is no part of it.
type owner struct {
	proven bool
	domain string
}

// favor is how many times as much room what is proven may take as what is not.
const favor = 3

// ownerOf is the owner of records; records of several are those of nobody.
func ownerOf(logs plog.Logs) (of owner) {
	first := true
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, r := range scope.LogRecords().All() {
				of.proven = of.proven || text(r.Attributes(), "tracecore.trust") == string(record.Proven)
				if domain := text(r.Attributes(), "gen_ai.training.job_domain"); first {
					of.domain = domain
				} else if domain != of.domain {
					of.domain = ""
				}
				first = false
			}
		}
	}
	return of
}

func text(m pcommon.Map, name string) string {
	if v, ok := m.Get(name); ok {
		return v.Str()
	}
	return ""
}

// nobody is the owner of metrics: they come on the receiver's own time.
func nobody(pmetric.Metrics) owner { return owner{} }

// room makes room for a batch, false where it is the batch itself that gives way.
func (o *Outbox[T]) room(one *entry[T]) bool {
	if o.size == 0 || o.size+one.size <= Capacity {
		return true
	}
	if one.size > Capacity {
		return false
	}
	for o.size+one.size > Capacity {
		from := o.most(one)
		if from == one.owner {
			return false
		}
		o.dropNewest(from)
	}
	return true
}

// most is the owner that would hold most with one more batch, by its favor; the batch's
// own where nobody holds more.
func (o *Outbox[T]) most(one *entry[T]) owner {
	most, weight := one.owner, one.owner.weigh(o.held[one.owner]+one.size)
	for other, held := range o.held {
		w := other.weigh(held)
		if w > weight || w == weight && most != one.owner && other.before(most) {
			most, weight = other, w
		}
	}
	return most
}

func (w owner) weigh(held int) int {
	if w.proven {
		return held
	}
	return favor * held
}

// before orders owners that hold equally much, so that equal floods end equally.
func (w owner) before(other owner) bool {
	return !w.proven && other.proven || w.proven == other.proven && w.domain < other.domain
}

// dropNewest drops the last batch of an owner.
func (o *Outbox[T]) dropNewest(from owner) {
	for i, one := range slices.Backward(o.waiting) {
		if one.owner == from {
			o.count(one.size)
			o.size -= one.size
			o.release(&o.waiting[i])
			o.waiting = slices.Delete(o.waiting, i, i+1)
			return
		}
	}
}

// release takes a batch that no longer waits off its owner.
func (o *Outbox[T]) release(one *entry[T]) {
	if o.held[one.owner] -= one.size; o.held[one.owner] == 0 {
		delete(o.held, one.owner)
	}
}

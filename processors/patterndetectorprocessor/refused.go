package patterndetectorprocessor

import (
	"hash/maphash"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// mostRefused bounds how many refused records are remembered.
const mostRefused = 4096

// refused remembers wanted records of batches that the next consumer refused.
// Their sender tries again, and one fault must not count twice. Content hash →
// how many such records may come again; the oldest goes when full.
type refused struct {
	seed  maphash.Seed
	again map[uint64]int
	order []uint64
}

func newRefused() *refused { return &refused{seed: maphash.MakeSeed(), again: map[uint64]int{}} }

// remember takes what a refused batch held.
func (r *refused) remember(hashes []uint64) {
	for _, hash := range hashes {
		r.again[hash]++
	}
	r.order = append(r.order, hashes...)
	for len(r.order) > mostRefused {
		r.forget(r.order[0])
		r.order = r.order[1:]
	}
}

func (r *refused) forget(hash uint64) {
	if r.again[hash]--; r.again[hash] <= 0 {
		delete(r.again, hash)
	}
}

// without returns ld without the records that were seen before they were
// refused, and the hashes of those: ld itself in the ordinary case that nothing
// was refused.
func (r *refused) without(ld plog.Logs) (fresh plog.Logs, repeated []uint64) {
	if len(r.again) == 0 {
		return ld, nil
	}
	fresh = plog.NewLogs()
	ld.CopyTo(fresh)
	eachLog(fresh, func(resource pcommon.Resource, record plog.LogRecord) bool {
		hash := r.hash(resource, record)
		if r.again[hash] == 0 {
			return false
		}
		r.forget(hash)
		repeated = append(repeated, hash)
		return true
	})
	return fresh, repeated
}

// hashes are those of all records of ld.
func (r *refused) hashes(ld plog.Logs) []uint64 {
	var hashes []uint64
	eachLog(ld, func(resource pcommon.Resource, record plog.LogRecord) bool {
		hashes = append(hashes, r.hash(resource, record))
		return false
	})
	return hashes
}

// eachLog visits all records and removes those for which visit returns true.
func eachLog(ld plog.Logs, visit func(pcommon.Resource, plog.LogRecord) bool) {
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			scope.LogRecords().RemoveIf(func(record plog.LogRecord) bool { return visit(resource.Resource(), record) })
		}
	}
}

// hash covers a record and its resource by their bytes.
func (r *refused) hash(resource pcommon.Resource, record plog.LogRecord) uint64 {
	one := plog.NewLogs()
	rl := one.ResourceLogs().AppendEmpty()
	resource.CopyTo(rl.Resource())
	record.CopyTo(rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	data, err := (&plog.ProtoMarshaler{}).MarshalLogs(one)
	if err != nil {
		return 0 // cannot fail for data in memory; such records would all be one
	}
	return maphash.Bytes(r.seed, data)
}

package ncclfrreceiver

import (
	"context"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
)

// Bounds of what is told of files that are refused. Their names and their users are
// whatever strangers like; all are counted.
const (
	refusalWindow = time.Minute
	mostRefusals  = 5   // of the files of one user in a window
	mostRefusers  = 256 // users in a window
	mostDetail    = 256 // bytes
)

// refusals bounds the records of files that are refused, for each user by himself.
type refusals struct {
	since time.Time // when the window began
	users map[uint32]*refuser
}

// refuser is a user whose files were refused.
type refuser struct{ told, untold int }

func newRefusals() refusals { return refusals{users: map[uint32]*refuser{}} }

// may reports whether a refusal is told, and how many of that user were not since the
// last one that was.
func (r *refusals) may(uid uint32, now time.Time) (untold int, ok bool) {
	if now.Sub(r.since) >= refusalWindow || now.Before(r.since) {
		maps.DeleteFunc(r.users, func(_ uint32, u *refuser) bool { return u.untold == 0 })
		for _, u := range r.users {
			u.told = 0
		}
		r.since = now
	}
	u := r.users[uid]
	switch {
	case u == nil && len(r.users) >= mostRefusers:
		return 0, false
	case u == nil:
		u = &refuser{}
		r.users[uid] = u
	}
	if u.told >= mostRefusals {
		u.untold++
		return 0, false
	}
	u.told++
	untold, u.untold = u.untold, 0
	return untold, true
}

// refusal is a file that is not read.
type refusal struct {
	path string
	uid  uint32   // whose it is
	by   *written // who wrote it, where it lies where a rank writes its dumps
	err  error
}

// tell counts a refusal, and tells of it in the log and in a record.
func (f *flightRecorder) tell(ctx context.Context, r refusal, text string) {
	f.countRefused(ctx, why(r.err))
	now := f.clock.now()
	untold, ok := f.refusals.may(r.uid, now)
	if !ok {
		return
	}
	f.settings.Logger.Warn(text, zap.String("file", r.path), zap.Error(r.err))
	if !f.config.Events.NcclFrRefused.Enabled {
		return
	}
	f.record(r, text, untold, now)
	f.builder.SetHost(f.host)
	logs := f.builder.Emit()
	op := f.report.StartLogsOp(ctx)
	err := record.Deliver(op, f.next, logs, 0) // dumps do not wait for it
	f.report.EndLogsOp(op, metadata.Type.String(), logs.LogRecordCount(), err)
	if err != nil {
		f.telemetry.ReceiverNcclfrRecordsDropped.Add(ctx, 1)
	}
}

func (f *flightRecorder) record(r refusal, text string, untold int, now time.Time) {
	a := f.builder.NcclFrRefused(record.Head{Trust: record.Claimed, Time: now, Observed: now, Severity: record.Warning, Text: text})
	who, path := nobody(identity.Unknown), r.path
	if r.by != nil {
		who, path = r.by.process, r.by.path
	}
	a.Stamp(who)
	a.NcclFrFile(flightrecorder.Clip(path, 4096))
	a.NcclFrRefusedReason(why(r.err))
	a.NcclFrRefusedDetail(flightrecorder.Clip(r.err.Error(), mostDetail))
	record.NotZero(a.NcclFrRefusedUntold, untold)
}

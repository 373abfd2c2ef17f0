package kerneleventsreceiver

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// endsKey is where the ends of processes are kept that the next consumer has not taken.
const endsKey = "ends"

// Bounds of these. A next consumer that goes on has a few.
const (
	mostUntaken     = 512
	mostUntakenText = 2 << 20
)

// untaken are the ends that the next consumer has not taken yet. They are lost with this process, and nothing shows them again:
// the next one tells them as they were told. A consumer that took one just before gets the same record twice.
type untaken struct {
	all     []*end // the oldest first; of the worker
	written []byte

	mu    sync.Mutex
	taken []*end        // guarded by mu: what the worker has not heard of
	news  chan struct{} // there is some
}

// end is the end of one process, as it was told.
type end struct {
	Process identity.Born `json:"process"`
	Wrapper uint32        `json:"wrapper,omitempty"`
	Record  []byte        `json:"record"` // OTLP

	ranks []*onRoll // that ended with it
}

func newUntaken() *untaken { return &untaken{news: make(chan struct{}, 1)} }

// add takes an end that is about to be given to the next consumer. Where there are too many, the oldest that ended no rank gives way.
func (u *untaken) add(e *end, logs plog.Logs) {
	record, err := (&plog.ProtoMarshaler{}).MarshalLogs(logs)
	if err != nil { // no record of this receiver
		return
	}
	e.Record = record
	if len(u.all) >= mostUntaken {
		at := max(0, slices.IndexFunc(u.all, func(o *end) bool { return len(o.ranks) == 0 }))
		u.all = slices.Delete(u.all, at, at+1)
	}
	u.all = append(u.all, e)
}

// took is called by those who deliver.
func (u *untaken) took(e *end) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken = append(u.taken, e)
	select {
	case u.news <- struct{}{}:
	default:
	}
}

// settle forgets what was taken, and reports whether that was anything.
func (u *untaken) settle() bool {
	u.mu.Lock()
	taken := u.taken
	u.taken = nil
	u.mu.Unlock()
	before := len(u.all)
	u.all = slices.DeleteFunc(u.all, func(e *end) bool { return slices.Contains(taken, e) })
	return len(u.all) != before
}

// ranks are those whose ends were not taken.
func (u *untaken) ranks() (all []*onRoll) {
	for _, e := range u.all {
		all = append(all, e.ranks...)
	}
	return all
}

// write keeps them.
func (u *untaken) write(w *watched) error {
	text, err := json.Marshal(u.all)
	if err != nil || len(text) > mostUntakenText || bytes.Equal(text, u.written) || u.written == nil && len(u.all) == 0 {
		return err
	}
	if err = w.keep(endsKey, text); err == nil {
		u.written = text
	}
	return err
}

// left are those that the process before this kept.
func (u *untaken) left(w *watched) (all []*end) {
	text := w.kept(context.Background(), endsKey)
	if text == nil || len(text) > mostUntakenText {
		return nil
	}
	if err := json.Unmarshal(text, &all); err != nil || len(all) > mostUntaken {
		w.settings.Logger.Warn("ends that were not delivered before this start are lost: the note of them makes no sense", zap.Error(err))
		return nil
	}
	u.written = text
	return all
}

// tells gives an end to the next consumer.
func (w *worker) tells(e *end, logs plog.Logs) {
	if logs.LogRecordCount() == 0 { // the event is switched off
		return
	}
	w.roll.untaken.add(e, logs)
	w.putThen(logs, func() { w.roll.untaken.took(e) })
}

// tellAgain gives ends to the next consumer that the process before this had given it, and of which it is not known whether they
// were taken. It returns which these are.
func (w *worker) tellAgain() map[identity.Born]bool {
	told := map[identity.Born]bool{}
	for _, e := range w.roll.untaken.left(w.roll.watched) {
		logs, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(e.Record)
		if err != nil || told[e.Process] || !w.tellsAll(logs) {
			continue
		}
		told[e.Process] = true
		w.roll.before = slices.DeleteFunc(w.roll.before, func(p onRoll) bool {
			is := p.Born() == e.Process || e.Wrapper != 0 && p.PID == e.Wrapper
			if is {
				e.ranks = append(e.ranks, &p)
			}
			return is
		})
		w.tells(e, logs)
	}
	return told
}

// tellsAll reports whether these are events that this start tells, too.
func (w *worker) tellsAll(logs plog.Logs) bool {
	all := logs.LogRecordCount() > 0
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, r := range scope.LogRecords().All() {
				all = all && w.enabled[r.EventName()]
			}
		}
	}
	return all
}

// settled forgets the ends that were taken.
func (w *worker) settled() {
	if w.roll.untaken.settle() {
		w.roll.changed(time.Now())
	}
}

// close notes what was taken of what the worker left, and lets go of the storage.
func (w *worker) close() {
	select {
	case <-w.ended:
		if w.roll.untaken.settle() {
			w.roll.close(time.Now())
		}
	default: // it never began, or hangs
	}
	w.watched.close()
}

// Package replay gives recordings to the patterns and returns the verdicts: OTLP
// as the collector's file exporter writes it, saved kernel logs, and Flight
// Recorder dumps, which are joined over the ranks first. It needs no collector and
// no privilege, runs anywhere, and the same files give the same verdicts.
//
// Records of several files are merged by event time. Held at once are the next
// message of each open file, the engine's bounded state and the verdicts not yet
// shown. The engine has room for what a recording of that size can ask for.
package replay

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/engine"
	ncclhang "github.com/tracecoreai/tracecore/patterns/nccl_hang"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Options of a replay.
type Options struct {
	Rules []rule.Rule
	// Lateness is how much older than the newest a record may be: the pattern
	// detector's option of that name.
	Lateness time.Duration

	Job  string         // of Flight Recorder dumps, "" when not known
	Host string         // of kernel logs that name none; "" is the file's name up to its first dot
	Boot time.Time      // of machines whose kernel log has only time since boot
	Zone *time.Location // of times that name none; nil is UTC
	Year int            // of times that name none; 0 refuses them

	Stdin io.Reader

	Show   func([]verdict.Verdict) error // given verdicts in their last revision
	Bad    func(error)                   // told of each part of the input that could not be read
	Note   func(error)                   // told of what could be read but means less than it could
	Report func(Progress)                // told how far it got, often
}

// Progress is how far a replay got.
type Progress struct {
	Bytes    int64 // read, as they are in the files
	Records  uint64
	Verdicts int
}

// Result is what a replay saw.
type Result struct {
	Progress
	Files  int
	Unread int // files of which some or all could not be read
	// Notes are what Note was told, the first few.
	Notes []string
	Other uint64 // messages of traces and profiles, which patterns do not look at
	// Dumps say how far the ranks are whose Flight Recorder dumps show nothing that stands
	// still.
	Dumps  []string
	Engine engine.Stats
	Heard  []engine.Heard // when what feeds each piece of evidence last came
	// Agents are those that said that they watch; a record counts where it is proven, as at a
	// gateway. Last is their present.
	Agents *heartbeat.Book

	First, Last time.Time // event time of the records, zero for none
}

// run is one replay.
type run struct {
	opener
	result  Result
	join    rule.Host // of the dumps, as the rankjoin processor hosts it
	engine  *engine.Engine
	streams streams
	ledger  ledger
	quiet   map[string][]string // by run: how far its ranks are
	started bool
	now     time.Time // of the engine
}

// Run replays the files, and those below the folders.
func Run(ctx context.Context, paths []string, o Options) (Result, error) {
	files, problems := expand(paths)
	room := roomFor(files)
	room.Lateness = o.Lateness
	e, err := engine.New(o.Rules, room)
	if err != nil {
		return Result{}, err
	}
	o.Zone = utcUnless(o.Zone)
	r := &run{engine: e, ledger: ledger{show: o.Show}, quiet: map[string][]string{}}
	r.result.Agents = heartbeat.NewBook(time.Time{})
	r.join = hostJoin(func(run string, lines []string) { r.quiet[run] = lines })
	note := o.Note
	o.Note = func(err error) {
		const most = 8
		if len(r.result.Notes) < most {
			r.result.Notes = append(r.result.Notes, safetext.Line(err.Error()))
		}
		note(err)
	}
	r.opener = opener{Options: o, count: func(n int) { r.result.Bytes += int64(n) }}
	defer r.close()
	r.openAll(ctx, files, problems)
	if err := r.feed(ctx); err != nil {
		return r.result, err
	}
	r.finish()
	r.result.Engine, r.result.Other, r.result.Heard = e.Stats(), r.other, e.Heard()
	for _, run := range slices.Sorted(maps.Keys(r.quiet)) {
		for _, line := range r.quiet[run] {
			if len(r.quiet) > 1 {
				line = run + ": " + line
			}
			r.result.Dumps = append(r.result.Dumps, line)
		}
	}
	return r.result, r.ledger.flush(0)
}

// Scan gives the records of the files, and of those below the folders, to each in the order
// of their event time, without any pattern.
func Scan(ctx context.Context, paths []string, o Options, each func(plog.Logs, pmetric.Metrics)) error {
	o.Zone = utcUnless(o.Zone)
	r := &run{opener: opener{Options: o, count: func(int) {}}}
	defer r.close()
	files, problems := expand(paths)
	r.openAll(ctx, files, problems)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, more := r.streams.next()
		if !more {
			return nil
		}
		each(b.logs, b.metrics)
	}
}

// hostJoin makes a join that tells quiet what it finds nothing in.
func hostJoin(quiet func(run string, lines []string)) rule.Host {
	join := ncclhang.New(ncclhang.DefaultOptions)
	join.Quiet = quiet
	return rule.Host{Detector: ncclhang.Detector(ncclhang.DefaultOptions), Algorithm: join}
}

// openAll opens every input up to its first batch. Files that end there are
// closed again, so that a folder may hold many.
func (r *run) openAll(ctx context.Context, files []string, problems []error) {
	for _, err := range problems {
		r.Bad(err)
	}
	r.result.Files, r.result.Unread = len(files)+len(problems), len(problems)
	for i, path := range files {
		if ctx.Err() != nil {
			return
		}
		if len(r.streams.open) == mostOpen {
			r.refuse(fmt.Errorf("%s: more than %d long files side by side: replay fewer at once", path, mostOpen))
			continue
		}
		s, err := r.open(path)
		if err != nil {
			r.refuse(err)
			continue
		}
		r.streams.add(&member{stream: s, order: i, bad: r.badOnce()})
		r.Report(r.result.Progress)
	}
}

func (r *run) refuse(err error) {
	r.result.Unread++
	r.Bad(err)
}

// badOnce returns what is told of the damage in one file: the first few say what
// is wrong, a thousand more would hide the other files'.
func (r *run) badOnce() func(error) {
	const most = 3
	seen := 0
	return func(err error) {
		if seen++; seen == 1 {
			r.result.Unread++
		}
		var p partial
		switch {
		case seen <= most, !errors.As(err, &p): // what ends the file is always told
			r.Bad(err)
		case seen == most+1:
			r.Bad(fmt.Errorf("%w; further damage in this file is left out", err))
		}
	}
}

// feed gives the batches to the engine in the order of their event time.
func (r *run) feed(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, more := r.streams.next()
		if !more {
			return nil
		}
		came := b.arrival(r.Lateness)
		r.advance(came)
		r.hear(b.logs, came)
		r.join.Logs(b.logs, came.UnixNano())
		r.engine.Logs(b.logs)
		r.engine.Metrics(b.metrics)
		r.result.Records += uint64(b.records)
		r.result.cover(b.span)
		if err := r.collect(); err != nil {
			return err
		}
		r.Report(r.result.Progress)
	}
}

// hear notes which agents watch.
func (r *run) hear(ld plog.Logs, now time.Time) {
	heartbeat.Each(ld, func(of pcommon.Map, record plog.LogRecord, beat heartbeat.Beat) {
		if rule.TrustOf(of, record.Attributes()) == verdict.Proven {
			r.result.Agents.Hear(beat, now)
		}
	})
}

// cover notes the event time of records that have one.
func (r *Result) cover(s span) {
	if s.first <= 0 {
		return
	}
	if first := time.Unix(0, s.first).UTC(); r.First.IsZero() || first.Before(r.First) {
		r.First = first
	}
	if last := time.Unix(0, s.last).UTC(); last.After(r.Last) {
		r.Last = last
	}
}

func (r *run) collect() error {
	r.ledger.add(r.engine.Verdicts())
	r.result.Verdicts = r.ledger.count
	return r.ledger.flush(mostVerdicts)
}

func (r *run) close() {
	for s := range r.streams.open {
		_ = s.stream.close() // read to where it was wanted
	}
	if r.zstd != nil {
		r.zstd.Close()
	}
}

// member is a stream among others.
type member struct {
	stream *stream
	order  int // of the files: decides between equal times
	bad    func(error)
	at     int64 // of its head
}

// streams yields the batches of all files by time.
type streams struct {
	ready []*member // a heap
	open  map[*member]bool
}

func (s *streams) add(m *member) {
	if s.open == nil {
		s.open = map[*member]bool{}
	}
	if head := m.stream.head(m.bad); head != nil {
		m.at = head.first
		heap.Push(s, m)
	}
	s.note(m)
}

// note keeps the list of files that are open.
func (s *streams) note(m *member) {
	if m.stream.in != nil {
		s.open[m] = true
	} else {
		delete(s.open, m)
	}
}

// next takes the earliest batch.
func (s *streams) next() (batch, bool) {
	if len(s.ready) == 0 {
		return batch{}, false
	}
	m := s.ready[0]
	b := m.stream.pop()
	if head := m.stream.head(m.bad); head != nil {
		m.at = head.first
		heap.Fix(s, 0)
	} else {
		heap.Pop(s)
	}
	s.note(m)
	return b, true
}

// Len, Less, Swap, Push and Pop make a heap of the streams.
func (s *streams) Len() int { return len(s.ready) }

// Less puts the earlier head first.
func (s *streams) Less(i, j int) bool {
	a, b := s.ready[i], s.ready[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) < 0
}

// Swap changes places.
func (s *streams) Swap(i, j int) { s.ready[i], s.ready[j] = s.ready[j], s.ready[i] }

// Push adds a stream.
func (s *streams) Push(m any) { s.ready = append(s.ready, m.(*member)) }

// Pop removes the last stream.
func (s *streams) Pop() any {
	last := len(s.ready) - 1
	m := s.ready[last]
	s.ready = s.ready[:last]
	return m
}

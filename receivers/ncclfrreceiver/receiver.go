package ncclfrreceiver

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/process"
)

// patience is how long a consumer that refuses is asked again before the dump
// is left for the next round: its file does not go away.
const patience = 10 * time.Second

// dumpReader reads the content of a dump: in a process of its own, or in a test's.
type dumpReader interface {
	Read(ctx context.Context, data []byte) (*flightrecorder.Digest, error)
	Close()
}

// flightRecorder is the receiver: one goroutine looks for dumps, reads each once
// and hands its records to the next consumer.
type flightRecorder struct {
	config    *Config
	settings  receiver.Settings
	next      consumer.Logs
	clock     clock
	telemetry *metadata.TelemetryBuilder
	report    *receiverhelper.ObsReport
	builder   *metadata.LogsBuilder
	host      record.Host

	origins origins
	roots   *roots
	dumps   dumpReader
	seen    *seen
	pace    pace
	// waiting are files that end too early, with the state they were read in;
	// complained those that could not be opened, which is said once.
	waiting    map[string]fingerprint
	complained map[string]bool
	refusals   refusals
	overfull   bool

	patience time.Duration
	giveUp   context.CancelFunc
	poller   sync.WaitGroup
	stop     sync.Once
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, c clock) (*flightRecorder, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
		ReceiverID: settings.ID, Transport: "file", LongLivedCtx: true, ReceiverCreateSettings: settings,
	})
	if err != nil {
		return nil, err
	}
	pattern, err := config.jobPattern()
	if err != nil {
		return nil, err
	}
	return &flightRecorder{
		config: config, settings: settings, next: next, clock: c, telemetry: telemetry, report: report,
		builder: metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), host: record.ThisHost(),
		origins: origins{job: config.JobID, pattern: pattern}, roots: newRoots(""), dumps: process.New(config.limits()), pace: newPace(),
		seen: newSeen(config.MaxFiles), waiting: map[string]fingerprint{}, complained: map[string]bool{}, refusals: newRefusals(),
		patience: patience, giveUp: func() {},
	}, nil
}

// Start takes up what was read before and begins to look for dumps.
func (f *flightRecorder) Start(ctx context.Context, host component.Host) error {
	var err error
	if f.origins.ranks, err = record.Resolver(host, f.config.Identity); err != nil {
		return err
	}
	f.lookAtRanks()
	client, err := record.Storage(ctx, host, f.config.Storage, f.settings.ID)
	if err != nil {
		return err
	}
	if client != nil {
		if err := f.seen.load(ctx, client); err != nil {
			f.storageFailed(ctx, err)
		}
	}
	polling, giveUp := context.WithCancel(context.Background())
	f.giveUp = giveUp
	f.poller.Go(func() { f.run(polling) })
	return nil
}

// lookAtRanks has dumps looked for where ranks write them, if that can be.
func (f *flightRecorder) lookAtRanks() {
	if f.origins.ranks == nil {
		return
	}
	if err := f.roots.able(); err != nil {
		f.settings.Logger.Warn("dumps are not looked for in the roots of ranks, only where include says", zap.Error(err))
		return
	}
	f.roots.resolver = f.origins.ranks
}

func (f *flightRecorder) run(ctx context.Context) {
	ticks, stop := f.clock.ticks(f.config.PollInterval)
	defer stop()
	for {
		f.poll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// poll deals with every file that is new or has changed.
func (f *flightRecorder) poll(ctx context.Context) {
	files := Find(f.config.Include)
	if len(files) > f.config.MaxFiles {
		f.tooMany(ctx, len(files))
		files = files[:f.config.MaxFiles]
	}
	// Those of ranks first: of a file with two names, their process is known.
	written, refused := f.roots.look(f.clock.now())
	found := f.pace.inTurn(slices.Concat(written, named(files)))
	f.forgetGone(found, refused, files)
	for _, r := range refused {
		f.unreadable(ctx, mark{}, r)
	}
	for _, c := range found {
		if ctx.Err() != nil {
			return
		}
		f.visit(ctx, c)
	}
}

// forgetGone drops what was known of files that are not there any more.
func (f *flightRecorder) forgetGone(found []candidate, refused []refusal, files []string) {
	there := map[string]bool{}
	for _, r := range refused {
		there[r.path] = true
	}
	for _, c := range found {
		there[c.path] = true
	}
	gone := func(path string) bool {
		_, named := slices.BinarySearch(files, path)
		return !named && !there[path]
	}
	maps.DeleteFunc(f.waiting, func(path string, _ fingerprint) bool { return gone(path) })
	maps.DeleteFunc(f.complained, func(path string, _ bool) bool { return gone(path) })
}

func (f *flightRecorder) tooMany(ctx context.Context, n int) {
	if f.overfull {
		return
	}
	f.overfull = true
	f.countRefused(ctx, "too_many")
	f.settings.Logger.Warn("more files than max_files match, the last are not read: remove old dumps or narrow include", zap.Int("files", n))
}

// visit reads a file once it is whole.
func (f *flightRecorder) visit(ctx context.Context, c candidate) {
	path, print := c.path, c.print
	if f.seen.done(path, print) {
		return
	}
	now := f.clock.now()
	changed := time.Unix(0, print.ModNS)
	abandoned := tooOld(changed, now, f.config.GiveUpAfter)
	if last, waits := f.waiting[path]; waits && last == print && !abandoned {
		return // as incomplete as before
	}
	if tooOld(changed, now, f.config.MaxAge) {
		f.refuse(ctx, mark{Path: path, Print: print}, c.refused(errTooOld))
		return
	}
	if !f.pace.may(c, now) {
		return
	}
	begin := time.Now()
	delivered := f.read(ctx, c, abandoned, now)
	f.pace.spent(c, f.clock.since(begin), delivered, now)
}

// mostTries is how often a file may end its reader before it is given up: the first
// may have been somebody else's fault.
const mostTries = 2

// read reads a file and hands on what is in it. It reports whether that was worth it.
func (f *flightRecorder) read(ctx context.Context, at candidate, abandoned bool, now time.Time) (delivered bool) {
	path := at.path
	c, err := f.open(at)
	if errors.Is(err, errChanging) || errors.Is(err, fs.ErrNotExist) {
		return false
	}
	m := mark{Path: path, Print: c.print, Hash: c.hash}
	if err != nil {
		f.unreadable(ctx, m, at.refused(err))
		return false
	}
	if f.seen.knows(c.hash) {
		f.remember(ctx, m) // the same dump, touched or moved
		return false
	}
	tries := f.seen.tries(path, c.print)
	if tries >= mostTries {
		f.refuse(ctx, m, at.refused(process.ErrKilled))
		return false
	}
	f.remember(ctx, mark{Path: path, Print: c.print, Tries: tries + 1})
	digest, err := f.dumps.Read(ctx, c.data)
	if errors.Is(err, process.ErrKilled) && tries+1 < mostTries {
		f.settings.Logger.Info("the process that read a file as a dump ended, the file is tried once more", zap.String("file", path), zap.Error(err))
		return false
	}
	return f.conclude(ctx, m, at, &c, digest, err, abandoned, now)
}

// open reads the bytes of a file.
func (f *flightRecorder) open(at candidate) (content, error) {
	if at.written != nil {
		return f.roots.read(at, f.config.MaxFileSize)
	}
	return readWhole(at.path, f.config.MaxFileSize)
}

// conclude deals with what the reading of a file gave.
func (f *flightRecorder) conclude(ctx context.Context, m mark, at candidate, c *content, digest *flightrecorder.Digest, err error, abandoned bool, now time.Time) (delivered bool) {
	if !errors.Is(err, process.ErrNoReader) {
		delete(f.complained, m.Path)
	}
	var from *origin
	if err == nil {
		from, err = f.origins.origin(m.Path, at.written, c, digest)
	}
	switch {
	case ctx.Err() != nil:
		f.remember(ctx, mark{Path: m.Path}) // our own end: it is read at the next start
	case errors.Is(err, process.ErrNoReader):
		f.remember(ctx, mark{Path: m.Path})
		f.unreadable(ctx, m, at.refused(err))
	case errors.Is(err, flightrecorder.ErrTruncated) && !abandoned:
		f.remember(ctx, mark{Path: m.Path})
		f.waiting[m.Path] = c.print
	case err != nil:
		f.refuse(ctx, m, at.refused(err))
	default:
		from.observed = now
		return f.hand(ctx, m, digest, from)
	}
	return false
}

// unreadable deals with a file that cannot be read. One that is too large stays
// so; any other is tried again, for permissions may change, and said once.
func (f *flightRecorder) unreadable(ctx context.Context, m mark, r refusal) {
	m.Path = r.path
	if errors.Is(r.err, flightrecorder.ErrTooLarge) {
		f.refuse(ctx, m, r)
		return
	}
	if f.complained[r.path] || len(f.complained) >= f.config.MaxFiles {
		return
	}
	f.complained[r.path] = true
	f.tell(ctx, r, "a file cannot be read as a Flight Recorder dump, it is tried again")
}

// refuse gives a file up in its present state.
func (f *flightRecorder) refuse(ctx context.Context, m mark, r refusal) {
	if errors.Is(r.err, errTooOld) {
		f.countRefused(ctx, why(r.err))
	} else {
		f.tell(ctx, r, "a file is not read as a Flight Recorder dump")
	}
	m.Hash = [16]byte{} // the same content under a better name or limit is another chance
	f.remember(ctx, m)
}

// hand delivers the records of a dump. A refusal that may pass leaves the dump
// for the next round.
func (f *flightRecorder) hand(ctx context.Context, m mark, digest *flightrecorder.Digest, from *origin) (delivered bool) {
	if f.config.Events.NcclFrDump.Enabled {
		logs := f.logs(digest, from)
		n := logs.LogRecordCount()
		op := f.report.StartLogsOp(ctx)
		err := record.Deliver(op, f.next, logs, f.patience)
		f.report.EndLogsOp(op, metadata.Type.String(), n, err)
		if err != nil && !consumererror.IsPermanent(err) {
			f.remember(ctx, mark{Path: m.Path})
			return true
		}
		if err != nil {
			f.telemetry.ReceiverNcclfrRecordsDropped.Add(ctx, int64(n))
		}
	}
	f.telemetry.ReceiverNcclfrDumps.Add(ctx, 1)
	f.remember(ctx, m)
	return true
}

func (f *flightRecorder) logs(digest *flightrecorder.Digest, from *origin) plog.Logs {
	add(f.builder, digest, from)
	host := f.host
	if f.config.Shared && from.process.PID == 0 {
		host = record.Host{Name: digest.Host}
	}
	f.builder.SetHost(host)
	return f.builder.Emit()
}

// remember marks a file as done. It outlives the end of ctx: what was delivered
// must not be delivered again.
func (f *flightRecorder) remember(ctx context.Context, m mark) {
	delete(f.waiting, m.Path)
	if err := f.seen.put(context.WithoutCancel(ctx), m); err != nil {
		f.storageFailed(ctx, err)
	}
}

func (f *flightRecorder) storageFailed(ctx context.Context, err error) {
	f.telemetry.ReceiverNcclfrStorageErrors.Add(ctx, 1)
	f.settings.Logger.Warn("the storage does not answer: after a restart dumps may be read again", zap.Error(err))
}

func (f *flightRecorder) countRefused(ctx context.Context, reason string) {
	f.telemetry.ReceiverNcclfrFilesRefused.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
}

// Shutdown ends the looking and waits, no longer than ctx, until the next
// consumer has the last dump.
func (f *flightRecorder) Shutdown(ctx context.Context) error {
	var err error
	f.stop.Do(func() {
		f.giveUp()
		defer f.dumps.Close()
		if err = record.Wait(ctx, "the next consumer holds the last dump", f.poller.Wait); err == nil {
			err = f.seen.close(ctx)
		}
		f.telemetry.Shutdown()
	})
	return err
}

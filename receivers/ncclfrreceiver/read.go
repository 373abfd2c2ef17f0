package ncclfrreceiver

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/process"
)

// errNoRank is a dump that does not say whose it is.
var errNoRank = errors.New("neither the dump nor its file name says which rank wrote it: name dumps <prefix><rank>, as PyTorch does")

// ReadFile reads one dump into the records that the receiver would emit for it,
// without a host: for replay. job may be empty. A link is followed: here the user
// named it.
func ReadFile(path, job string) (plog.Logs, error) {
	config := createDefaultConfig().(*Config)
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return plog.NewLogs(), fmt.Errorf("read %s: %w", path, err)
	}
	c, err := readWhole(target, config.MaxFileSize)
	if err != nil {
		return plog.NewLogs(), fmt.Errorf("read %s: %w", path, err)
	}
	r := origins{job: job}
	digest, err := flightrecorder.Read(c.data, flightrecorder.DefaultLimits)
	if err != nil {
		return plog.NewLogs(), fmt.Errorf("read %s: %w", path, err)
	}
	from, err := r.origin(path, nil, &c, digest)
	if err != nil {
		return plog.NewLogs(), fmt.Errorf("read %s: %w", path, err)
	}
	from.observed = c.changed
	builder := metadata.NewLogsBuilder(config.LogsBuilderConfig, receiver.Settings{})
	add(builder, digest, from)
	return builder.Emit(), nil
}

// origins knows where a dump comes from.
type origins struct {
	job     string
	pattern *regexp.Regexp    // of the job id in a path, nil without
	ranks   identity.Resolver // nil without
}

// origin is where the dump in that file comes from. by is the rank that it was found at,
// nil for none: then nothing in the file says otherwise.
func (r *origins) origin(path string, by *written, c *content, digest *flightrecorder.Digest) (*origin, error) {
	if by != nil {
		_, run := splitRank(by.path)
		return &origin{file: utf8Of(by.path), run: utf8Of(run), changed: c.changed, process: by.process}, nil
	}
	rank, run := splitRank(path)
	if digest.Rank != flightrecorder.Unknown {
		rank = digest.Rank
	}
	if rank == flightrecorder.Unknown {
		return nil, errNoRank
	}
	from := &origin{file: utf8Of(path), run: utf8Of(run), changed: c.changed, process: r.process(rank, c.changed)}
	if job := r.jobOf(utf8Of(path)); job != "" {
		from.process.JobID = job
	}
	return from, nil
}

// utf8Of makes text of a path, which on unix is any bytes: a record that is no
// UTF-8 would not be taken by the next collector.
func utf8Of(path string) string { return strings.ToValidUTF8(path, "\ufffd") }

func (r *origins) jobOf(path string) string {
	if r.pattern != nil {
		if found := r.pattern.FindStringSubmatch(path); found != nil {
			return found[1]
		}
	}
	return r.job
}

// process is the living process of that rank on this host that can have written a dump
// then. Where two jobs run here there may be two: then it is not known which wrote it.
func (r *origins) process(rank int, changed time.Time) identity.Process {
	unknown := nobody(rank)
	if r.ranks == nil {
		return unknown
	}
	found := unknown
	for _, p := range r.ranks.Ranks() {
		if p.Rank != rank || p.Inherited || !canHaveWritten(p, changed) {
			continue
		}
		if found.PID != 0 {
			return unknown
		}
		found = p
	}
	return found
}

// nobody is a rank whose process is not known.
func nobody(rank int) identity.Process {
	return identity.Process{Rank: rank, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
}

// canHaveWritten reports whether the process had begun by then. A second allows for the
// clock of a file server.
func canHaveWritten(p identity.Process, changed time.Time) bool {
	return !p.StartTime.After(changed.Add(time.Second))
}

// why names the reason a file is refused, as metadata.yaml lists them.
func why(err error) string {
	for _, reason := range []struct {
		err  error
		name string
	}{
		{flightrecorder.ErrTruncated, "truncated"},
		{flightrecorder.ErrHostile, "hostile"},
		{flightrecorder.ErrTooLarge, "too_large"},
		{flightrecorder.ErrNotADump, "not_a_dump"},
		{errNoRank, "no_rank"},
		{errTooOld, "too_old"},
		{process.ErrKilled, "killed_reader"},
		{process.ErrNoReader, "no_reader"},
		{procfs.ErrHung, "no_answer"},
	} {
		if errors.Is(err, reason.err) {
			return reason.name
		}
	}
	return "unreadable"
}

// errTooOld is a dump from before max_age.
var errTooOld = errors.New("older than max_age")

func tooOld(changed, now time.Time, most time.Duration) bool { return now.Sub(changed) > most }

// IsReader reports whether this process was started to read dumps: the receiver starts
// its own program for that. A main asks this before anything else, and then only
// returns what Reader returns.
func IsReader() bool { return process.IsChild() }

// Reader is the whole life of such a process.
func Reader() (exitCode int) { return process.Child() }

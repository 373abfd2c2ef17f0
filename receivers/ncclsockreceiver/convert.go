package ncclsockreceiver

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// peerOther stands for the peers beyond the cap.
const peerOther = "other"

// converter turns stalls and traffic into records. It is pure but for the
// builders' buffers, and not safe for concurrent use.
type converter struct {
	logs    *metadata.LogsBuilder
	metrics *metadata.MetricsBuilder
}

func newConverter(logs *metadata.LogsBuilder, metrics *metadata.MetricsBuilder, host record.Host) *converter {
	logs.SetHost(host)
	return &converter{logs: logs, metrics: metrics}
}

// records makes a record of each event, of each job that is watched by the rank that stands
// for it, and of each process that left its job; nil when there is none to make.
func (c *converter) records(events []stall.Event, watched []stall.Watched, left []stall.Left, at, observed time.Time) *plog.Logs {
	for i := range events {
		c.stall(&events[i], observed)
	}
	for i := range watched {
		c.watched(&watched[i], at, observed)
	}
	for i := range left {
		c.left(&left[i], observed)
	}
	return c.emit()
}

// failed makes a record of each process that failed and had lost no connection, or one, and of those that had closed these first; nil when there is none to make.
func (c *converter) failed(all []stall.Kept, lost []stall.Lost, cut []stall.Cut, observed time.Time) *plog.Logs {
	for i := range all {
		p := all[i].Process
		text := fmt.Sprintf("rank %d failed, and had lost no connection to its job before", p.Rank)
		c.logs.NcclSocketKept(record.Head{Trust: record.Proven, Time: all[i].Time, Observed: observed, Severity: record.Info, Text: text}).Stamp(p)
	}
	for i := range lost {
		c.lost(&lost[i], observed)
	}
	for i := range cut {
		c.cut(&cut[i], observed)
	}
	return c.emit()
}

// lost says that a process failed and had lost a connection to its job.
func (c *converter) lost(l *stall.Lost, observed time.Time) {
	text := fmt.Sprintf("rank %d failed, and had lost a connection to its job before", l.Process.Rank)
	a := c.logs.NcclSocketLost(record.Head{Trust: record.Proven, Time: l.Time, Observed: observed, Severity: record.Info, Text: text})
	a.Stamp(l.Process)
	a.NcclSocketLostHow(string(l.How))
	a.NcclSocketLostBeforeNs(int64(l.Time.Sub(l.At)))
	if p := l.Peer; p != nil {
		a.NcclPeerPid(int64(p.PID))
		record.NotNegative(a.NcclPeerRank, p.Rank)
	}
}

// cut says that a process closed a connection first, of which another one failed.
func (c *converter) cut(l *stall.Cut, observed time.Time) {
	text := fmt.Sprintf("rank %d closed a connection to its job before any other rank did, and rank %d lost it and failed", l.Process.Rank, l.Victim.Rank)
	a := c.logs.NcclSocketCut(record.Head{Trust: record.Proven, Time: l.Time, Observed: observed, Severity: record.Info, Text: text})
	a.Stamp(l.Process)
	a.NcclSocketCutEnd(string(l.End))
	a.NcclPeerPid(int64(l.Victim.PID))
	record.NotNegative(a.NcclPeerRank, l.Victim.Rank)
}

func (c *converter) emit() *plog.Logs {
	logs := c.logs.Emit()
	if logs.LogRecordCount() == 0 {
		return nil
	}
	return &logs
}

func (c *converter) watched(w *stall.Watched, at, observed time.Time) {
	text := fmt.Sprintf("data of the job of rank %d moves over sockets, which are watched", w.Process.Rank)
	a := c.logs.NcclSocketWatched(record.Head{Trust: record.Proven, Time: at, Observed: observed, Severity: record.Info, Text: text})
	a.Stamp(w.Process)
	if !w.Since.IsZero() {
		record.NotNegative(a.NcclSocketWatchedNs, int64(at.Sub(w.Since)))
	}
}

// left says that a process has left its job, or that this is over.
func (c *converter) left(l *stall.Left, observed time.Time) {
	head := record.Head{Trust: record.Proven, Time: l.Time, Observed: observed, Severity: record.Info, Text: describeLeft(l)}
	if l.End != "" {
		a := c.logs.NcclSocketLeftEnd(head)
		a.Stamp(l.Process)
		a.NcclSocketLeftEndReason(string(l.End))
		a.NcclSocketLeftFirst(l.First)
		a.NcclSocketLeftClosed(int64(l.Closed))
		return
	}
	a := c.logs.NcclSocketLeft(head)
	a.Stamp(l.Process)
	a.NcclSocketLeftFirst(l.First)
	a.NcclSocketLeftClosed(int64(l.Closed))
}

func describeLeft(l *stall.Left) string {
	who := fmt.Sprintf("rank %d", l.Process.Rank)
	switch {
	case l.End == socketstall.LeftJoined:
		return who + " has connections to its job again"
	case l.End == socketstall.LeftGoesOn:
		return who + " has left its job, which goes on without it"
	case l.First:
		return who + " closed its connections to its job before any other rank did, and lives on"
	}
	return who + " closed its connections to its job after others had, and lives on"
}

func (c *converter) stall(e *stall.Event, observed time.Time) {
	head := record.Head{Trust: record.Proven, Time: e.Time, Observed: observed, Severity: record.Warning, Text: describe(e)}
	if e.Cause == socketstall.Waiting || e.End != "" {
		head.Severity = record.Info
	}
	if e.End != "" {
		a := c.logs.NcclSocketStallEnd(head)
		put(e, a.IdentityAttributes, a.StallAttributes, a.SocketAttributes, a.DoingAttributes, a.ProcessAttributes)
		a.NcclSocketStallEndReason(string(e.End))
		return
	}
	a := c.logs.NcclSocketStall(head)
	put(e, a.IdentityAttributes, a.StallAttributes, a.SocketAttributes, a.DoingAttributes, a.ProcessAttributes)
	a.StampSignal(e.Rank.Stopped)
}

// put writes what a stall and its end both say.
func put(e *stall.Event, who record.IdentityAttributes, a metadata.StallAttributes, s metadata.SocketAttributes, d record.DoingAttributes, p metadata.ProcessAttributes) {
	who.Stamp(e.Process)
	putStall(a, e)
	putSocket(s, &e.Socket)
	putDoing(d, &e.Rank)
	putProcess(p, &e.Rank)
}

func putStall(a metadata.StallAttributes, e *stall.Event) {
	a.NcclSocketStallID(e.ID)
	a.NcclSocketCause(string(e.Cause))
	a.NcclSocketDirection(string(e.Direction))
	a.NcclSocketKind(string(e.Kind))
	a.NcclSocketStallAgeNs(int64(e.Age))
	a.NcclSocketCount(int64(e.Count))
	a.NcclSocketError(errorName(e.Errno))
	record.NotNegative(a.NcclPeerRank, e.PeerRank)
	record.NotNegative(a.NcclPeerReceivedBytes, e.PeerReceived)
}

func putSocket(a metadata.SocketAttributes, s *ncclsock.Socket) {
	if s.Local.IsValid() {
		a.NetworkLocalAddress(s.Local.Addr().Unmap().String())
		a.NetworkLocalPort(int64(s.Local.Port()))
	}
	a.NetworkPeerAddress(s.Remote.Addr().Unmap().String())
	a.NetworkPeerPort(int64(s.Remote.Port()))
	a.NcclSocketState(stateName(s.State))
	a.NcclSocketReceiveQueueBytes(int64(s.ReceiveQueueBytes))
	a.NcclSocketUnsentBytes(int64(s.UnsentBytes))
	a.NcclSocketUnackedBytes(int64(s.UnackedBytes))
	a.NcclSocketSendWindowBytes(int64(s.SendWindowBytes))
	a.NcclSocketSentBytes(int64(s.BytesSent))
	a.NcclSocketReceivedBytes(int64(s.BytesReceived))
	a.NcclSocketRetransmits(int64(s.Retransmits))
	a.NcclSocketBackoff(int64(s.Backoff))
	record.NotNegative(a.NcclSocketLastSentAgeNs, s.LastSentAge)
	record.NotNegative(a.NcclSocketLastReceivedAgeNs, s.LastReceivedAge)
}

func putDoing(a record.DoingAttributes, r *stall.RankFacts) {
	a.NcclRankState(string(r.State))
	a.NcclRankActivity(string(r.Activity))
	a.NcclRankSilence(string(r.Silence))
	record.NotNegative(a.NcclRankRestNs, r.Rest)
	if r.Inside != nil {
		r.Inside.Write(a)
	}
}

func putProcess(a metadata.ProcessAttributes, r *stall.RankFacts) {
	record.NotNegative(a.NcclRankLastSentAgeNs, r.LastSentAge)
	record.NotNegative(a.NcclRankLastReceivedAgeNs, r.LastReceivedAge)
	record.NotZero(a.NcclRankTickNs, r.Tick.Nanoseconds())
	if r.Awaits.IsValid() {
		a.NcclRankAwaits(r.Awaits.String())
	}
	record.NotNegative(a.NcclRankUsualPhaseNs, r.UsualPhase)
	record.NotNegative(a.NcclRankWatchedNs, r.Watched)
	if r.CPUShare >= 0 {
		a.NcclRankCPUShare(r.CPUShare)
	}
	if r.MainCPUShare >= 0 {
		a.NcclRankMainThreadCPUShare(r.MainCPUShare)
	}
	if r.Inside != nil {
		putLimit(a, r.Inside)
	}
}

// putLimit writes what keeps a rank from having a CPU.
func putLimit(a metadata.ProcessAttributes, in *stall.Inside) {
	if in.Limit.Throttled > 0 {
		a.NcclRankCPULimitCgroup(in.Limit.Cgroup)
		a.NcclRankCPULimitMillicores(int64(math.Round(in.Limit.Cores * 1000)))
		a.NcclRankCPUThrottledPercent(int64(math.Ceil(in.Limit.Throttled * 100)))
	}
	if in.Pressure >= 1 {
		a.NcclRankCPUPressurePercent(int64(in.Pressure))
	}
}

// measures makes the metrics of all series and processes; nil when there are none.
func (c *converter) measures(each func(func(*stall.Series)), lines []line, processes map[uint32]stall.Process, at time.Time) *pmetric.Metrics {
	now := pcommon.NewTimestampFromTime(at)
	standing := map[stallPoint]stall.Standing{}
	each(func(s *stall.Series) {
		peer := peerOther
		if s.Peer.IsValid() {
			peer = s.Peer.String()
		}
		job := ofJob(s.JobID, s.Domain)
		c.metrics.RecordNcclSocketIoDataPoint(now, int64(s.SentBytes), peer, "transmit", job...)
		c.metrics.RecordNcclSocketIoDataPoint(now, int64(s.ReceivedBytes), peer, "receive", job...)
		c.metrics.RecordNcclSocketRetransmitsDataPoint(now, int64(s.Retransmits), peer, job...)
		for cause, d := range s.Stalled {
			c.metrics.RecordNcclSocketStallTimeDataPoint(now, d.Seconds(), peer, string(cause), job...)
			if one, stands := s.Longest[cause]; stands {
				standing[stallPoint{peer, string(cause), s.JobID, s.Domain}] = one
			}
		}
	})
	for _, p := range processes {
		if p.CPU >= 0 { // read
			c.metrics.RecordProcessCPUTimeDataPoint(now, p.CPU.Seconds(), ofProcess(&p)...)
		}
	}
	for i := range lines {
		l := &lines[i]
		of := append(ofProcess(l.of), metadata.WithNetworkLocalAddressMetricAttribute(l.local.String()))
		if l.name != "" {
			of = append(of, metadata.WithNetworkInterfaceNameMetricAttribute(l.name))
		}
		c.metrics.RecordProcessNetworkIoDataPoint(now, int64(l.moved.Sent), "transmit", of...)    //nolint:gosec // no process moves so much
		c.metrics.RecordProcessNetworkIoDataPoint(now, int64(l.moved.Received), "receive", of...) //nolint:gosec // no process moves so much
	}
	metrics := c.metrics.Emit(metadata.WithResource(c.logs.Resource()))
	if metrics.DataPointCount() == 0 {
		return nil
	}
	if len(standing) > 0 {
		putExemplars(metrics, standing, now)
	}
	return &metrics
}

// line is what a process moved over a local address of its machine.
type line struct {
	of    *stall.Process
	local netip.Addr
	name  string // of the interface, "" when not known
	moved stall.Line
}

func ofProcess(p *stall.Process) []metadata.MetricAttributeOption {
	return append(ofJob(p.JobID, p.Domain),
		metadata.WithProcessPidMetricAttribute(int64(p.PID)), metadata.WithGenAiTrainingRankMetricAttribute(int64(p.Rank)))
}

func ofJob(id, domain string) (of []metadata.MetricAttributeOption) {
	if id != "" {
		of = append(of, metadata.WithGenAiTrainingJobIDMetricAttribute(id))
	}
	if domain != "" {
		of = append(of, metadata.WithGenAiTrainingJobDomainMetricAttribute(domain))
	}
	return of
}

// stallPoint is what tells the points of the time of stalls apart.
type stallPoint struct{ peer, cause, job, domain string }

// putExemplars says of each point whose stall it counts: which rank, for how long its socket
// has not moved, and the span that TRACEPARENT in its environment names, if one is there.
func putExemplars(metrics pmetric.Metrics, standing map[stallPoint]stall.Standing, now pcommon.Timestamp) {
	for _, metric := range metrics.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if metric.Name() != metadata.MetricsInfo.NcclSocketStallTime.Name {
			continue
		}
		for _, point := range metric.Sum().DataPoints().All() {
			text := func(key string) string {
				v, _ := point.Attributes().Get(key)
				return v.Str()
			}
			one, stands := standing[stallPoint{text("network.peer.address"), text("nccl.socket.cause"), text("gen_ai.training.job_id"), text("gen_ai.training.job_domain")}]
			if !stands {
				continue
			}
			record.Exemplar(point, &one.Process, one.Age.Seconds(), now)
		}
	}
}

// errorName names an errno; a number that is none stays a number.
func errorName(errno int32) string {
	switch e := syscall.Errno(max(errno, 0)); e {
	case 0:
		return ""
	case syscall.ECONNREFUSED:
		return "ECONNREFUSED"
	case syscall.ECONNRESET:
		return "ECONNRESET"
	case syscall.ETIMEDOUT:
		return "ETIMEDOUT"
	case syscall.EHOSTUNREACH:
		return "EHOSTUNREACH"
	case syscall.ENETUNREACH:
		return "ENETUNREACH"
	case syscall.EPIPE:
		return "EPIPE"
	}
	return fmt.Sprintf("errno %d", errno)
}

// stateName names a TCP state as the kernel does (include/net/tcp_states.h).
func stateName(s ncclsock.State) string {
	names := [...]string{
		"unknown", "established", "syn_sent", "syn_received", "fin_wait_1", "fin_wait_2", "time_wait", "close", "close_wait", "last_ack",
		"listen", "closing",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return names[0]
}

// describe says it in one line for a person who reads the log.
func describe(e *stall.Event) string {
	var text strings.Builder
	fmt.Fprintf(&text, "rank %d", e.Process.Rank)
	peer := e.Socket.Remote.String()
	if e.PeerRank >= 0 {
		peer = fmt.Sprintf("rank %d (%s)", e.PeerRank, peer)
	}
	s := &e.Socket
	switch e.Cause {
	case socketstall.NotReading:
		fmt.Fprintf(&text, " does not read %d bytes from %s", s.ReceiveQueueBytes, peer)
	case socketstall.PeerNotReading:
		fmt.Fprintf(&text, " cannot send to %s, which does not read: %d bytes unsent, window %d", peer, s.UnsentBytes, s.SendWindowBytes)
	case socketstall.Network:
		fmt.Fprintf(&text, " gets no answer from the network to %s: %d bytes unacknowledged, %d timeouts in a row", peer, s.UnackedBytes, s.Backoff)
	case socketstall.Connecting:
		fmt.Fprintf(&text, " cannot connect to %s", peer)
	case socketstall.Waiting:
		fmt.Fprintf(&text, " has nothing to %s, all its queues with %s are empty", e.Direction, peer)
	}
	if name := errorName(e.Errno); name != "" {
		fmt.Fprintf(&text, " (%s)", name)
	}
	fmt.Fprintf(&text, ", for %v", e.Age.Round(time.Millisecond))
	if e.End != "" {
		fmt.Fprintf(&text, ": over, %s", e.End)
	}
	return text.String()
}

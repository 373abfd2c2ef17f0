package ncclsockreceiver

import (
	"fmt"
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
	events   metadata.EventsConfig
	logs     *metadata.LogsBuilder
	metrics  *metadata.MetricsBuilder
	resource pcommon.Resource
}

func newConverter(config *Config, logs *metadata.LogsBuilder, metrics *metadata.MetricsBuilder, host record.Host) *converter {
	resource := logs.NewResourceBuilder()
	host.Set(resource.SetHostName, resource.SetHostID, resource.SetK8sNodeName)
	return &converter{events: config.Events, logs: logs, metrics: metrics, resource: resource.Emit()}
}

// stalls makes a record of each event; nil when there is none to make.
func (c *converter) stalls(events []stall.Event, observed time.Time) *plog.Logs {
	made := false
	for i := range events {
		e := &events[i]
		if e.End == "" && c.events.NcclSocketStall.Enabled || e.End != "" && c.events.NcclSocketStallEnd.Enabled {
			c.logs.AppendLogRecord(c.stall(e, observed))
			made = true
		}
	}
	if !made {
		return nil
	}
	logs := c.logs.Emit(metadata.WithLogsResource(c.resource))
	return &logs
}

func (c *converter) stall(e *stall.Event, observed time.Time) plog.LogRecord {
	r := plog.NewLogRecord()
	name, severity := socketstall.Event, record.Warning
	switch {
	case e.End != "":
		name, severity = socketstall.EventEnd, record.Info
	case e.Cause == socketstall.Waiting:
		severity = record.Info
	}
	record.Start(r, name, e.Time, observed, severity)
	r.Body().SetStr(describe(e))
	a := r.Attributes()
	a.EnsureCapacity(40)
	record.Stamp(a, e.Process)
	putStall(a, e)
	putSocket(a, &e.Socket)
	putRank(a, &e.Rank)
	return r
}

func putStall(a pcommon.Map, e *stall.Event) {
	a.PutStr("nccl.socket.stall.id", e.ID)
	a.PutStr("nccl.socket.cause", string(e.Cause))
	a.PutStr("nccl.socket.direction", string(e.Direction))
	a.PutStr("nccl.socket.kind", string(e.Kind))
	a.PutInt("nccl.socket.stall.age_ns", int64(e.Age))
	a.PutInt("nccl.socket.count", int64(e.Count))
	putText(a, "nccl.socket.stall.end_reason", string(e.End))
	putText(a, "nccl.socket.error", errorName(e.Errno))
	putKnown(a, "nccl.peer.rank", int64(e.PeerRank))
}

func putSocket(a pcommon.Map, s *ncclsock.Socket) {
	if s.Local.IsValid() {
		a.PutStr("network.local.address", s.Local.Addr().Unmap().String())
		a.PutInt("network.local.port", int64(s.Local.Port()))
	}
	a.PutStr("network.peer.address", s.Remote.Addr().Unmap().String())
	a.PutInt("network.peer.port", int64(s.Remote.Port()))
	a.PutStr("nccl.socket.state", stateName(s.State))
	a.PutInt("nccl.socket.receive_queue_bytes", int64(s.ReceiveQueueBytes))
	a.PutInt("nccl.socket.unsent_bytes", int64(s.UnsentBytes))
	a.PutInt("nccl.socket.unacked_bytes", int64(s.UnackedBytes))
	a.PutInt("nccl.socket.send_window_bytes", int64(s.SendWindowBytes))
	a.PutInt("nccl.socket.sent_bytes", int64(s.BytesSent))
	a.PutInt("nccl.socket.received_bytes", int64(s.BytesReceived))
	a.PutInt("nccl.socket.retransmits", int64(s.Retransmits))
	a.PutInt("nccl.socket.backoff", int64(s.Backoff))
	putKnown(a, "nccl.socket.last_sent_age_ns", int64(s.LastSentAge))
	putKnown(a, "nccl.socket.last_received_age_ns", int64(s.LastReceivedAge))
}

func putRank(a pcommon.Map, r *stall.RankFacts) {
	putKnown(a, "nccl.rank.last_sent_age_ns", int64(r.LastSentAge))
	putKnown(a, "nccl.rank.last_received_age_ns", int64(r.LastReceivedAge))
	putKnown(a, "nccl.rank.usual_phase_ns", int64(r.UsualPhase))
	putText(a, "nccl.rank.state", string(r.State))
	if r.CPUShare >= 0 {
		a.PutDouble("nccl.rank.cpu_share", r.CPUShare)
	}
	if r.MainCPUShare >= 0 {
		a.PutDouble("nccl.rank.main_thread_cpu_share", r.MainCPUShare)
	}
}

func putText(a pcommon.Map, key, text string) {
	if text != "" {
		a.PutStr(key, text)
	}
}

// putKnown leaves out what is negative: not known.
func putKnown(a pcommon.Map, key string, value int64) {
	if value >= 0 {
		a.PutInt(key, value)
	}
}

// traffic makes the metrics of all series; nil when there are none.
func (c *converter) traffic(each func(func(*stall.Series)), at time.Time) *pmetric.Metrics {
	now := pcommon.NewTimestampFromTime(at)
	each(func(s *stall.Series) {
		peer := peerOther
		if s.Peer.IsValid() {
			peer = s.Peer.String()
		}
		var job []metadata.MetricAttributeOption
		if s.JobID != "" {
			job = append(job, metadata.WithGenAiTrainingJobIDMetricAttribute(s.JobID))
		}
		c.metrics.RecordNcclSocketIoDataPoint(now, int64(s.SentBytes), peer, "transmit", job...)
		c.metrics.RecordNcclSocketIoDataPoint(now, int64(s.ReceivedBytes), peer, "receive", job...)
		c.metrics.RecordNcclSocketRetransmitsDataPoint(now, int64(s.Retransmits), peer, job...)
		for cause, d := range s.Stalled {
			c.metrics.RecordNcclSocketStallTimeDataPoint(now, d.Seconds(), peer, string(cause), job...)
		}
	})
	metrics := c.metrics.Emit(metadata.WithResource(c.resource))
	if metrics.DataPointCount() == 0 {
		return nil
	}
	return &metrics
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

// describe says it in one line for whoever reads the log.
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

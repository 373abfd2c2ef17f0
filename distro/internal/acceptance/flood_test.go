//go:build linux

package acceptance

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// agentLimit is the memory limit of the chart.
const agentLimit = 512 << 20

// flooded is a tracecore in a memory cgroup, and where it listens.
type flooded struct {
	agent
	group      hosttest.MemoryCgroup
	grpc, http string // addresses
}

func startFlooded(t testing.TB, limit int64, flags ...string) flooded {
	t.Helper()
	f := flooded{group: hosttest.NewMemoryCgroup(t, limit), grpc: hosttest.FreeAddress(t), http: hosttest.FreeAddress(t)}
	flags = append(flags, "--set=receivers.otlp.protocols.grpc.endpoint="+f.grpc, "--set=receivers.otlp.protocols.http.endpoint="+f.http)
	f.agent = startAgentBy(t, f.group.Start, t.TempDir(), flags...)
	return f
}

// alive requires that nothing was killed and that the process says that it is well. It asks as
// often as a kubelet does before it kills: where many programs want the processors, a question
// may be cut off for not having been read in time.
func (f flooded) alive(t testing.TB) {
	t.Helper()
	const failureThreshold = 3
	probe := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hosttest.Patience}
	var err error
	for range failureThreshold {
		require.Zero(t, f.group.OOMKills(t), "%s", f.Stderr)
		require.False(t, f.Ended(), "%s", f.Stderr)
		var resp *http.Response
		if resp, err = probe.Get("http://" + f.Health); err == nil {
			_ = resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
			return
		}
	}
	require.NoError(t, err)
}

// refused is the sum of what the receiver counts as refused for a reason.
func (f flooded) refused(t testing.TB, reason string) int {
	t.Helper()
	text := fetch(f.metrics)
	require.NotEmpty(t, text)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "otelcol_receiver_otlp_refused") && strings.Contains(line, `reason="`+reason+`"`) {
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(t, err)
			return int(n)
		}
	}
	return 0
}

// flood is something that a stranger sends, and why the receiver refuses it; "" where
// it may as well be taken.
type flood struct {
	name    string
	send    func(testing.TB, flooded)
	refused string
}

var floods = []flood{
	{"values nested a million deep over HTTP", func(t testing.TB, f flooded) { post(t, f, protoType, nested(1_000_000)) }, "too_deep"},
	{"values nested two million deep over HTTP", func(t testing.TB, f flooded) { post(t, f, protoType, nested(2_000_000)) }, "too_deep"},
	{"values nested as deep as a gRPC message is long", func(t testing.TB, f flooded) { invoke(t, f, "", nested(400_000)) }, "too_deep"},
	{"values nested a million deep over gRPC", func(t testing.TB, f flooded) { invoke(t, f, "", nested(1_000_000)) }, ""},
	{"values nested 700,000 deep in JSON", func(t testing.TB, f flooded) { post(t, f, jsonType, nestedJSON(700_000)) }, "too_deep"},
	{"ten million empty records", func(t testing.TB, f flooded) { post(t, f, protoType, emptyRecords(10_000_000)) }, "too_costly"},
	{"2,300 records with 100 KB", func(t testing.TB, f flooded) { sendLarge(t, f, 2300, 100<<10) }, ""},
	{"200 records with 1 MB", func(t testing.TB, f flooded) { sendLarge(t, f, 200, 1<<20) }, ""},
	{"40 records with 4 MB", func(t testing.TB, f flooded) { sendLarge(t, f, 40, 4<<20) }, ""},
	{"one record with 15 MB", func(t testing.TB, f flooded) { sendLarge(t, f, 1, 15<<20) }, "too_long"},
	{"60 bodies of 19 MB at once", func(t testing.TB, f flooded) {
		together(60, func(int) { post(t, f, protoType, largeRecord(0, 19<<20)) })
	}, "busy"},
	{"100,000 keys", sendManyKeys, ""},
	{"gzip of 200 MB zeros", func(t testing.TB, f flooded) { post(t, f, protoType, zipped(t), "Content-Encoding", "gzip") }, "too_costly"},
	{"frames of zstd that ask for 512 MiB each", func(t testing.TB, f flooded) {
		together(50, func(int) { post(t, f, protoType, hugeWindow, "Content-Encoding", "zstd") })
		together(50, func(int) { invoke(t, f, "zstd", hugeWindow) })
	}, ""},
	{"10,000 connections that say nothing", func(t testing.TB, f flooded) { halfOpen(t, 10_000, f.grpc, f.http) }, "connections"},
	{"10,000 connections to the other ports that say nothing", func(t testing.TB, f flooded) { halfOpen(t, 10_000, f.Health, f.metrics) }, ""},
}

// TestAFloodKillsNoAgentAndHidesNoVerdict floods an agent with the memory of the chart.
// Between the floods a GPU falls off the bus, and is named.
func TestAFloodKillsNoAgentAndHidesNoVerdict(t *testing.T) {
	privtest.Require(t)
	if inTestMachine(t) {
		t.Skip("the senders of the floods would take the whole memory")
	}
	encoding.RegisterCompressor(asItIs{"zstd"}) // of this process; the agent is another
	withstand(t, startFlooded(t, agentLimit), func(t *testing.T, f flooded, n int) {
		gpu := fmt.Sprintf("0000:%02x:00.0", 0x20+n)
		writeKmsg(t, fmt.Sprintf("NVRM: Xid (PCI:%s): 79, GPU has fallen off the bus.", strings.TrimSuffix(gpu, ".0")))
		f.await(t, "the lost GPU", about("gpu_lost", "gpu", gpu))
	})
}

// withstand sends each flood and asks for a verdict beside it and behind it.
func withstand(t *testing.T, f flooded, fault func(t *testing.T, f flooded, n int)) {
	t.Helper()
	n := 0
	for _, one := range floods {
		t.Run(one.name, func(t *testing.T) {
			before := 0
			if one.refused != "" {
				before = f.refused(t, one.refused)
			}
			done := make(chan struct{})
			go func() { defer close(done); one.send(t, f) }()
			fault(t, f, n)
			f.alive(t)
			<-done
			fault(t, f, n+1)
			n += 2
			f.alive(t)
			t.Logf("most memory so far: %d MiB", f.group.Peak(t)>>20)
			if one.refused != "" {
				require.Greater(t, f.refused(t, one.refused), before)
			}
		})
	}
}

// together calls it in so many goroutines.
func together(n int, call func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i) })
	}
	all.Wait()
}

const (
	protoType = "application/x-protobuf"
	jsonType  = "application/json"
)

// post sends a body to the agent; what it answers shows in its counters.
func post(t testing.TB, f flooded, contentType string, body []byte, headers ...string) {
	req, err := http.NewRequest(http.MethodPost, "http://"+f.http+"/v1/logs", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // it closed the connection
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// invoke sends bytes as a gRPC message, as if they were compressed already.
func invoke(t testing.TB, f flooded, compression string, message []byte) {
	conn, err := grpc.NewClient(f.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	options := []grpc.CallOption{grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallSendMsgSize(64 << 20)}
	if compression != "" {
		options = append(options, grpc.UseCompressor(compression))
	}
	if conn.Invoke(t.Context(), "/opentelemetry.proto.collector.logs.v1.LogsService/Export", message, new([]byte), options...) == nil {
		t.Error("a hostile message was taken")
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// asItIs is a compression of what is compressed already.
type asItIs struct{ name string }

func (a asItIs) Name() string                               { return a.name }
func (asItIs) Compress(w io.Writer) (io.WriteCloser, error) { return unclosed{w}, nil }
func (asItIs) Decompress(r io.Reader) (io.Reader, error)    { return r, nil }

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// nested is a log record whose body is arrays in arrays.
func nested(depth int) []byte {
	backwards := []byte{}
	wrap := func(number protowire.Number) {
		head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(backwards)))
		for i := len(head) - 1; i >= 0; i-- {
			backwards = append(backwards, head[i])
		}
	}
	for range depth {
		wrap(1)
		wrap(5)
	}
	for _, number := range []protowire.Number{5, 2, 2, 1} {
		wrap(number)
	}
	for i, j := 0, len(backwards)-1; i < j; i, j = i+1, j-1 {
		backwards[i], backwards[j] = backwards[j], backwards[i]
	}
	return backwards
}

func nestedJSON(depth int) []byte {
	return []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":` + strings.Repeat(`{"arrayValue":{"values":[`, depth) +
		strings.Repeat(`]}}`, depth) + `}]}]}]}`)
}

func emptyRecords(n int) []byte {
	body := bytes.Repeat([]byte{0x12, 0}, n)
	for _, number := range []protowire.Number{2, 1} {
		body = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
	}
	return body
}

// largeRecord is a record that a pattern or a join wants, with so many bytes in
// whatever it is known by.
func largeRecord(i, size int) []byte {
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "stranger")
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	record.SetEventName([...]string{"gpu.xid", "process.exit", "nccl.fr.dump", "nccl.socket.stall"}[i%4])
	long := strconv.Itoa(i) + strings.Repeat("x", size)
	attributes := record.Attributes()
	attributes.PutStr([...]string{"gpu.id", "gen_ai.training.job_id", "nccl.fr.file", "nccl.socket.peer"}[i%4], long)
	attributes.PutInt("kernelevents.xid", 79)
	attributes.PutInt("gen_ai.training.rank", int64(i))
	attributes.PutInt("nccl.fr.rank", int64(i))
	body, _ := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
	return body
}

// sendLarge sends n large records from eight senders.
func sendLarge(t testing.TB, f flooded, n, size int) {
	together(8, func(sender int) {
		for i := sender; i < n; i += 8 {
			post(t, f, protoType, largeRecord(i, size))
		}
	})
}

func sendManyKeys(t testing.TB, f flooded) {
	for batch := range 100 {
		logs := plog.NewLogs()
		records := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
		for i := range 1000 {
			record := records.AppendEmpty()
			record.SetEventName("gpu.xid")
			record.Attributes().PutStr("gpu.id", fmt.Sprintf("gpu-%d", 1000*batch+i))
			record.Attributes().PutInt("kernelevents.xid", 79)
			record.Attributes().PutStr(fmt.Sprintf("key-%d", 1000*batch+i), "value")
		}
		body, err := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
		if err != nil {
			t.Error(err)
			return
		}
		post(t, f, protoType, body)
	}
}

func zipped(t testing.TB) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(make([]byte, 200<<20)); err != nil {
		t.Error(err)
	}
	_ = z.Close()
	return b.Bytes()
}

// hugeWindow is a frame of zstd whose header asks for a window of 512 MiB.
var hugeWindow = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 19 << 3, 0x01, 0x00, 0x00}

// portsLater lets connections to several ports share a port of the sender.
func portsLater(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return errors.Join(err, set)
}

// halfOpen opens connections to ports by turns and says nothing. They come from an address
// of their own, as those of a stranger do: of one address the oldest connection gives way,
// so beside 10,000 of its own a probe is answered only if it asks before 64 others come.
func halfOpen(t testing.TB, n int, ports ...string) {
	stranger := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Control: portsLater}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range n {
		c, err := stranger.Dial("tcp", ports[i%len(ports)])
		if err != nil {
			continue
		}
		open = append(open, c)
	}
	if len(open) < 1000 {
		t.Errorf("only %d connections came about", len(open))
	}
}

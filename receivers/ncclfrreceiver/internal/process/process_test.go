package process

import (
	"context"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

func TestMain(m *testing.M) {
	if IsChild() {
		if os.Getenv(variable) == `{"Values":1,"Entries":0,"Memory":0}` {
			misbehave()
		}
		os.Exit(Child())
	}
	flag.Parse()
	os.Exit(m.Run())
}

var spun int // what a reader that hangs is busy with

// misbehave is a reader that does what the file says.
func misbehave() {
	if err := confine(); err != nil {
		panic(err)
	}
	os.Stdout.WriteString(greeting)
	for {
		data, err := readMessage(os.Stdin, mostFile)
		if err != nil {
			os.Exit(0)
		}
		switch string(data) {
		case "memory":
			var all [][]byte
			for {
				all = append(all, make([]byte, 1<<20))
				for i := 0; i < 1<<20; i += 4096 {
					all[len(all)-1][i] = 1
				}
			}
		case "hang":
			for n := 0; ; n++ { // takes a CPU and never ends
				spun = n
			}
		case "large":
			os.Stdout.Write([]byte{0, 0, 0, 0, 255, 255, 255, 255})
		case "nonsense":
			_ = writeMessage(os.Stdout, []byte(`{"Other": 1}`))
		case "open":
			_, err := os.Open("/dev/null")
			_ = writeMessage(os.Stdout, encode(answer{Kind: "hostile", Why: err.Error() + "\x1b[2J"}))
		}
	}
}

func real(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile("../flightrecorder/testdata/" + path)
	require.NoError(t, err)
	return data
}

func process(t testing.TB, limits flightrecorder.Limits) *Reader {
	p := New(limits)
	p.patience = hosttest.Patience
	t.Cleanup(p.Close)
	return p
}

func TestADumpIsReadAsInThisProcess(t *testing.T) {
	p := process(t, flightrecorder.DefaultLimits)
	data := real(t, "missing/rank_0.pickle")
	here, err := flightrecorder.Read(data, flightrecorder.DefaultLimits)
	require.NoError(t, err)
	for range 3 {
		there, err := p.Read(t.Context(), data)
		require.NoError(t, err)
		require.Equal(t, here, there)
	}
	require.Equal(t, 3, p.running.files, "one process for all")
}

func TestWhyAFileIsNotReadIsTold(t *testing.T) {
	p := process(t, flightrecorder.DefaultLimits)
	data := real(t, "missing/rank_0.pickle")
	_, err := p.Read(t.Context(), data[:len(data)/2])
	require.ErrorIs(t, err, flightrecorder.ErrTruncated)
	_, err = p.Read(t.Context(), []byte("\x80\x02cos\nsystem\n."))
	require.ErrorIs(t, err, flightrecorder.ErrHostile)
	require.ErrorContains(t, err, "opcode GLOBAL runs code")
	for name, bomb := range map[string]string{
		"lists": strings.Repeat("]", 32<<20), "nothing": strings.Repeat("N", 32<<20), "marks": strings.Repeat("(", 32<<20),
		"one long list": "]" + strings.Repeat("K\x01a", 10<<20), "memo": "N" + strings.Repeat("q\x00", 256) + strings.Repeat("r\x00\x00\x00\x00", 6<<20),
		"lists in lists": strings.Repeat("](](e]e", 4<<20), "tuples": "N" + strings.Repeat("\x85", 32<<20),
		"texts": "](" + strings.Repeat("X\x01\x00\x00\x00a0", 200) + strings.Repeat("X\x01\x00\x00\x00ae(", 4<<20),
	} {
		_, err = p.Read(t.Context(), []byte("\x80\x02"+bomb+"."))
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrKilled, name)
	}
	require.Less(t, peak(t, p), 400<<20)
	_, err = p.Read(t.Context(), data)
	require.NoError(t, err)
	require.Equal(t, 11, p.running.files, "none of them ended the process")
}

// peak is the most memory that the process had resident.
func peak(t *testing.T, p *Reader) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.running.command.Process.Pid) + "/status")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(status), "VmHWM:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	t.Logf("at most %d MiB", kib>>10)
	return kib << 10
}

// TestAReaderThatMisbehavesEndsAlone: this process gets an error in time, and the next
// file a new reader.
func TestAReaderThatMisbehavesEndsAlone(t *testing.T) {
	p := process(t, flightrecorder.Limits{Values: 1})
	for _, file := range []string{"memory", "large", "nonsense"} {
		_, err := p.Read(t.Context(), []byte(file))
		require.ErrorIs(t, err, ErrKilled, file)
	}
	p.patience = 100 * time.Millisecond
	_, err := p.Read(t.Context(), []byte("hang"))
	require.ErrorIs(t, err, ErrKilled)
	require.ErrorContains(t, err, "longer than 100ms")

	p.patience = hosttest.Patience
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = p.Read(ctx, []byte("hang"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrKilled, "our own end is not the file's fault")

	_, err = p.Read(t.Context(), []byte("open"))
	require.ErrorIs(t, err, flightrecorder.ErrHostile)
	require.Equal(t, "open /dev/null: too many open files?[2J", err.Error(), "it opens nothing, and control characters do not pass")
}

func TestTheReaderHasNoRights(t *testing.T) {
	p := process(t, flightrecorder.DefaultLimits)
	_, err := p.Read(t.Context(), real(t, "missing/rank_0.pickle"))
	require.NoError(t, err)
	dir := "/proc/" + strconv.Itoa(p.running.command.Process.Pid) + "/"
	status, err := os.ReadFile(dir + "status")
	require.NoError(t, err)
	environment, err := os.ReadFile(dir + "environ")
	require.NoError(t, err)
	require.NotContains(t, string(environment), "PATH=")
	limits, err := os.ReadFile(dir + "limits")
	require.NoError(t, err)
	require.Regexp(t, `Max open files\s+0\s+0`, string(limits))
	require.Regexp(t, `Max data size\s+671088640`, string(limits))
	if cgo {
		t.Skip("a build with cgo keeps its capabilities")
	}
	require.Regexp(t, `NoNewPrivs:\s+1`, string(status))
	require.Regexp(t, `CapEff:\s+0000000000000000`, string(status))
	require.Regexp(t, `CapPrm:\s+0000000000000000`, string(status))
}

func TestAnIdleReaderEnds(t *testing.T) {
	p := process(t, flightrecorder.DefaultLimits)
	p.idle = time.Millisecond
	_, err := p.Read(t.Context(), real(t, "missing/rank_0.pickle"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.running == nil
	}, hosttest.Patience, time.Millisecond)
}

func BenchmarkRead(b *testing.B) {
	p := process(b, flightrecorder.DefaultLimits)
	data := real(b, "missing/rank_0.pickle")
	for b.Loop() {
		if _, err := p.Read(b.Context(), data); err != nil {
			b.Fatal(err)
		}
	}
}

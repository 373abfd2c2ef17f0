//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkSnapshot is one snapshot of 10,000 sockets of 64 processes, with and
// without a thousand processes of others on the host. cpu-ns/op is the processor
// time of the whole reader, kernel side included: the iterator runs in it.
func BenchmarkSnapshot(b *testing.B) {
	const ranks, connections = 64, 78 // 157 sockets each with the listener
	var owners []uint32
	manyFiles(b, 16<<10)
	for range ranks {
		rank := newPlayerWith(b, 0)
		rank.must(b, order{Do: "many", N: connections})
		owners = append(owners, rank.pid)
	}
	probes := openAll(b, Options{})
	measure := func(b *testing.B) {
		for _, p := range probes {
			b.Run(p.Report().Rung, func(b *testing.B) { measureSnapshot(b, p, owners, ranks*(2*connections+1)) })
		}
	}
	b.Run("ranks alone", measure)
	others(b, 1000)
	b.Run("beside 1000 processes", measure)
}

func measureSnapshot(b *testing.B, p *Probe, owners []uint32, want int) {
	var s Snapshot
	require.NoError(b, p.Snapshot(owners, &s))
	require.Len(b, s.Sockets, want)
	b.ReportAllocs()
	before := ownCPU(b)
	for b.Loop() {
		if err := p.Snapshot(owners, &s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(ownCPU(b)-before)/float64(b.N), "cpu-ns/op")
}

// others starts processes with thirty open files each that nobody asks about.
func others(b *testing.B, n int) {
	null, err := os.Open(os.DevNull)
	require.NoError(b, err)
	defer null.Close()
	for range n {
		cmd := exec.Command("/bin/sleep", "infinity")
		cmd.ExtraFiles = slices.Repeat([]*os.File{null}, 27)
		require.NoError(b, cmd.Start())
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// ownCPU is the processor time of this process.
func ownCPU(b *testing.B) int64 {
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkLoopbackThroughput moves data over one loopback connection, in turns with
// no probe and with the probe open and a snapshot of this process ten times a
// second. with/without is the median ratio of neighbouring turns: 1 is no cost.
func BenchmarkLoopbackThroughput(b *testing.B) {
	const turn = 256 << 20
	stream := newStream(b)
	var ratios []float64
	for b.Loop() {
		without := stream.seconds(b, turn)
		p, err := Open(Options{pages: pagesHere()})
		require.NoError(b, err)
		stop := snapshots(b, p)
		with := stream.seconds(b, turn)
		stop()
		ratios = append(ratios, without/with)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "with/without")
	b.SetBytes(2 * turn)
}

// snapshots takes one ten times a second, until stopped, and closes the probe.
func snapshots(b *testing.B, p *Probe) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var s Snapshot
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if err := p.Snapshot([]uint32{uint32(os.Getpid())}, &s); err != nil {
				b.Error(err)
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		require.NoError(b, p.Close())
	}
}

// stream is a loopback connection that is read as fast as it is written.
type stream struct {
	writer net.Conn
	read   chan int
}

func newStream(b *testing.B) *stream {
	fd, err := listen(netip.AddrPortFrom(loopback4, 0))
	require.NoError(b, err)
	defer unix.Close(fd)
	at, err := unix.Getsockname(fd)
	require.NoError(b, err)
	writer, err := net.Dial("tcp", addrPortOfSockaddr(at).String())
	require.NoError(b, err)
	accepted, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	require.NoError(b, err)
	file := os.NewFile(uintptr(accepted), "accepted")
	reader, err := net.FileConn(file)
	require.NoError(b, err)
	require.NoError(b, file.Close())
	require.NoError(b, reader.(*net.TCPConn).SetReadBuffer(4<<20))
	s := &stream{writer: writer, read: make(chan int)}
	go func() {
		block := make([]byte, 256<<10)
		for {
			n, err := io.ReadFull(reader, block)
			if err != nil {
				close(s.read)
				return
			}
			s.read <- n
		}
	}()
	b.Cleanup(func() {
		require.NoError(b, writer.Close())
		for range s.read {
		}
		require.NoError(b, reader.Close())
	})
	return s
}

// seconds is how long n bytes take.
func (s *stream) seconds(b *testing.B, n int) float64 {
	b.Helper()
	start := time.Now()
	go func() {
		block := make([]byte, 256<<10)
		for sent := 0; sent < n; sent += len(block) {
			if _, err := s.writer.Write(block); err != nil {
				return
			}
		}
	}()
	for got := 0; got < n; got += <-s.read {
	}
	return time.Since(start).Seconds()
}

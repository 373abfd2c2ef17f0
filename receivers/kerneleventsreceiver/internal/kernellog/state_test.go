package kernellog

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// write gives the parser one line of a writer at a time after start.
func write(p *Parser, writer uint32, after time.Duration, text string) ([]Fault, Outcome) {
	event := kmsg.Event{Time: start.Add(after), PID: writer, Text: text}
	return p.Parse(nil, &event)
}

func TestLostGPUsOfTwoWritersDoNotMix(t *testing.T) {
	p := newTestParser(t)
	write(p, 1, 0, "NVRM: The NVIDIA GPU 0000:b3:00.0")
	write(p, 2, 0, "NVRM: The NVIDIA GPU 0000:17:00.0")
	for writer, device := range map[uint32]string{1: "0000:b3:00.0", 2: "0000:17:00.0"} {
		faults, _ := write(p, writer, time.Millisecond, "NVRM: fallen off the bus and is not responding to commands.")
		require.Len(t, faults, 1)
		require.Equal(t, device, faults[0].Key.Subject)
	}
}

func TestLostGPUIsForgottenAfterTheAssemblyWindow(t *testing.T) {
	p := newTestParser(t)
	write(p, 1, 0, "NVRM: The NVIDIA GPU 0000:b3:00.0")
	faults, _ := write(p, 1, 2*time.Second, "NVRM: fallen off the bus and is not responding to commands.")
	require.Len(t, faults, 1, "still a lost GPU")
	require.Empty(t, faults[0].Key.Subject, "but nobody knows which")
}

func TestHardwareErrorWithoutSeverityIsReportedInTheEnd(t *testing.T) {
	p := newTestParser(t)
	_, outcome := write(p, 1, 0, "nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: section_type: memory error")
	require.Equal(t, Benign, outcome)
	require.True(t, p.Pending())
	require.Empty(t, p.Expire(nil, start.Add(time.Second)))
	faults := p.Expire(nil, start.Add(1001*time.Millisecond))
	require.Len(t, faults, 1)
	require.Equal(t, "0000:65:00.0", faults[0].Key.Subject)
	require.False(t, p.Pending())
	require.Empty(t, p.Expire(nil, start.Add(time.Hour)))
}

func TestAPCIeErrorWithoutATypeIsReportedInTheEnd(t *testing.T) {
	p := newTestParser(t)
	const begin, end = "pcieport 0000:00:01.0: PCIe Bus Error: severity=Correctable", "pcieport 0000:00:01.0:   [ 0] RxErr | Receiver | Physical Layer"
	faults, outcome := write(p, 1, 0, begin)
	require.Empty(t, faults)
	require.Equal(t, Benign, outcome)
	require.True(t, p.Pending())
	require.Empty(t, p.Expire(nil, start.Add(time.Second)))
	faults = p.Expire(nil, start.Add(1001*time.Millisecond))
	require.Len(t, faults, 1)
	require.Equal(t, "0000:00:01.0", faults[0].Key.Subject)
	require.NotContains(t, attributesOf(faults[0]), "kernelevents.pcie_error_type")
	require.False(t, p.Pending())
	faults, outcome = write(p, 1, 2*time.Second, end)
	require.Empty(t, faults)
	require.Equal(t, Unrecognized, outcome)
}

func TestATypeOfAProcessIsNoneOfTheDrivers(t *testing.T) {
	p := newTestParser(t)
	driver := kmsg.Function{Name: "aer_print_error"}
	say := func(writer kmsg.Writer, origin kmsg.Function, text string) []Fault {
		faults, _ := p.Parse(nil, &kmsg.Event{Time: start, PID: 99, Writer: writer, Origin: origin, Text: text})
		return faults
	}
	require.Empty(t, say(kmsg.WriterKernel, driver, "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal)"))
	require.Empty(t, say(kmsg.WriterUserspace, kmsg.Function{Name: "devkmsg_emit"}, "pcieport 0000:00:01.0:   [ 0] RxErr | Receiver | forged"))
	faults := say(kmsg.WriterKernel, driver, "pcieport 0000:00:01.0:   [18] MalfTLP | Receiver | Transaction Layer")
	require.Len(t, faults, 1)
	require.Equal(t, record.Proven, faults[0].Key.Trust)
	require.Equal(t, "Transaction Layer", attributesOf(faults[0])["kernelevents.pcie_error_type"])
}

// attributesOf a fault are those of its event.
func attributesOf(f Fault) map[string]any { return f.Event.Attributes().AsRaw() }

func TestReusedSequenceNumberIsANewHardwareError(t *testing.T) {
	p := newTestParser(t)
	const detail, decision = "nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: detail", "nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: event severity: fatal"
	write(p, 1, 0, detail)
	faults, _ := write(p, 1, time.Minute, decision)
	require.Len(t, faults, 2, "the undecided one of a minute ago, and this one")
	faults, _ = write(p, 1, 2*time.Minute, decision)
	require.Len(t, faults, 1)
}

func TestParserRemembersNoMoreThanItsCap(t *testing.T) {
	p := newTestParser(t)
	reported := 0
	for i := range 10 * remembered {
		faults, _ := write(p, uint32(i), 0, fmt.Sprintf("nvidia 0000:65:00.0: NVRM: {%d}[Hardware Error]: detail", i))
		reported += len(faults)
		write(p, uint32(i), 0, "NVRM: The NVIDIA GPU 0000:b3:00.0")
		write(p, uint32(i), 0, fmt.Sprintf("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): %d, Fatal, Link 1", i))
		faults, _ = write(p, uint32(i), 0, fmt.Sprintf("pcieport %04x:00:01.0: PCIe Bus Error: severity=Correctable", i))
		reported += len(faults)
		write(p, uint32(i), 0, fmt.Sprintf("NVRM: GPU at PCI:%04x:65:00: GPU-1", i))
	}
	for _, size := range []int{p.claimed.hardware.len(), p.claimed.ports.len(), p.claimed.lost.len(), p.claimed.sxids.len(), p.claimed.uuids.len(), len(p.claimed.hardware.order), len(p.claimed.uuids.order)} {
		require.LessOrEqual(t, size, remembered)
	}
	reported += len(p.Expire(nil, start.Add(time.Hour)))
	require.Equal(t, 2*10*remembered, reported, "what is forgotten is reported")
}

func TestDetailOfAnOldSXidIsReportedAgain(t *testing.T) {
	p := newTestParser(t)
	write(p, 1, 0, "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up")
	faults, _ := write(p, 1, time.Minute, "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Data {0x1}")
	require.Len(t, faults, 1)
}

func TestForgedSegfaultNamesTheProcessOfItsText(t *testing.T) {
	const text = "python[1234]: segfault at 10 ip 0 sp 0 error 4 in libnccl.so.2[7f+1]"
	for writer, pid := range map[kmsg.Writer]uint32{kmsg.WriterKernel: 99, kmsg.WriterUserspace: 1234, kmsg.WriterUnknown: 1234} {
		faults, _ := newTestParser(t).Parse(nil, &kmsg.Event{PID: 99, Writer: writer, Text: text})
		require.Equal(t, pid, faults[0].OwnerPID)
	}
}

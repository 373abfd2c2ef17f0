package kernellog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
)

// write gives the parser one line of a writer at a time after start.
func write(p *Parser, writer uint32, after time.Duration, text string) ([]Fault, Outcome) {
	event := kmsg.Event{Time: start.Add(after), PID: writer, Text: text}
	return p.Parse(nil, &event)
}

func attribute(f Fault, key string) (Attribute, bool) {
	for _, a := range f.Attributes {
		if a.Key == key {
			return a, true
		}
	}
	return Attribute{}, false
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
		write(p, uint32(i), 0, fmt.Sprintf("NVRM: GPU at PCI:%04x:65:00: GPU-1", i))
	}
	for _, size := range []int{p.hardware.len(), p.lost.len(), p.sxids.len(), p.uuids.len(), len(p.hardware.order), len(p.uuids.order)} {
		require.LessOrEqual(t, size, remembered)
	}
	reported += len(p.Expire(nil, start.Add(time.Hour)))
	require.Equal(t, 10*remembered, reported, "what is forgotten is reported")
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

// The codes of NVIDIA's catalogue by recovery class.
func TestCatalogueCoversEveryClassifiedCode(t *testing.T) {
	p := newTestParser(t)
	listed := 0
	for class, codes := range map[Class]string{
		ClassRestartApplication: "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-89 94 96-105 126-135 139",
		ClassResetGPU:           "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
		ClassRestartNode:        "79",
		ClassRestartVM:          "151",
		ClassCheckHardware:      "54 165",
		ClassUpdateSoftware:     "78",
		ClassWorkflow:           "45 48 74 144-150 154 159 163 164 166-172",
		ClassInformational:      "37 38 43 44 63 66 67 92 93 106 107 121 137 141 152 153 157 160-162",
	} {
		for word := range strings.FieldsSeq(codes) {
			var first, last uint32
			if n, _ := fmt.Sscanf(word, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			for code := first; code <= last; code++ {
				xid := p.catalogue.Xid(code)
				require.Equal(t, class, xid.Class, code)
				require.NotEmpty(t, xid.Name, code)
				listed++
			}
		}
	}
	require.Len(t, p.catalogue.xids, listed)
}

func TestApplicationCausedXids(t *testing.T) {
	p := newTestParser(t)
	var codes []uint32
	for code := uint32(0); code < 200; code++ {
		if p.catalogue.Xid(code).Application {
			codes = append(codes, code)
		}
	}
	require.Equal(t, []uint32{13, 31, 43, 45}, codes)
}

func TestCatalogueRefusesWhatItCannotUse(t *testing.T) {
	const classes = "classes: {workflow: {severity: error}}\n"
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":      {classes + "xids: [{code: 1, name: A, clas: workflow}]", "clas"},
		"unknown class":    {classes + "xids: [{code: 1, name: A, class: pray}]", `class "pray"`},
		"unknown severity": {classes + "xids: [{code: 1, name: A, class: workflow, severity: bad}]", `severity "bad"`},
		"code twice":       {classes + "xids: [{code: 1, name: A, class: workflow}, {code: 1, name: B, class: workflow}]", "xid 1: listed twice"},
		"no name":          {classes + "xids: [{code: 1, class: workflow}]", "without a name"},
		"bad fault":        {classes + "faults: {x: {class: y}}", "fault x"},
		"bad action":       {classes + "actions: [{name: x, class: y}]", "action x"},
		"nothing":          {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readCatalogue(strings.NewReader(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

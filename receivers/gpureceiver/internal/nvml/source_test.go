package nvml

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a library without GPUs whose Init can wait.
type fake struct {
	Library
	init Code
	hold chan struct{} // Init waits for it
}

func (f *fake) Init() Code {
	if f.hold != nil {
		<-f.hold
	}
	return f.init
}
func (f *fake) Versions() (string, string, Code) { return "580", "13", OK }
func (f *fake) Count() (int, Code)               { return 0, OK }

// program runs the helper on a library.
type program struct {
	commands *io.PipeWriter
	messages *protocol.Reader
	code     chan int
}

func run(library Library, timeout time.Duration) *program {
	in, commands := io.Pipe()
	messages, out := io.Pipe()
	h := &program{commands: commands, messages: protocol.NewReader(messages), code: make(chan int, 1)}
	options := helper.Options{CallTimeout: timeout, Commands: in, Messages: out}
	if library != nil {
		options.Source = NewSource(library, device.EventXid)
	}
	go func() {
		h.code <- helper.Run(options)
		_ = in.Close()
		_ = out.Close()
	}()
	return h
}

func (h *program) next(t *testing.T) protocol.Message {
	m, err := h.messages.Read()
	require.NoError(t, err)
	return m
}

func TestLibraryThatIsNotReadyEndsTheHelper(t *testing.T) {
	for want, library := range map[string]Library{
		protocol.NoCgo: nil, protocol.LibraryAbsent: &fake{init: LibraryNotFound}, protocol.DriverNotLoaded: &fake{init: DriverNotLoaded},
		protocol.Failed: &fake{init: VersionMismatch},
	} {
		t.Run(want, func(t *testing.T) {
			h := run(library, time.Hour)
			require.Equal(t, want, h.next(t).State.Name)
			require.Equal(t, helper.Done, <-h.code)
			require.NoError(t, h.commands.Close())
		})
	}
}

func TestAPollIsASnapshotAndTheEndOfCommandsIsTheEnd(t *testing.T) {
	h := run(&fake{}, time.Hour)
	state := h.next(t).State
	require.Equal(t, protocol.Ready, state.Name)
	require.Equal(t, "580", state.Driver)
	require.False(t, state.Events, "no GPU can be listened to")
	_, err := io.WriteString(h.commands, "dance\n"+protocol.Poll+"\n")
	require.NoError(t, err)
	require.NotNil(t, h.next(t).Snapshot)
	require.NoError(t, h.commands.Close())
	require.Equal(t, helper.Done, <-h.code)
}

func TestACallThatHangsIsNamed(t *testing.T) {
	library := &fake{hold: make(chan struct{}), init: DriverNotLoaded}
	h := run(library, 10*time.Millisecond)
	hung := h.next(t).Hung
	require.Equal(t, "init", hung.Call)
	require.GreaterOrEqual(t, hung.Seconds, 0.01)
	require.Equal(t, helper.Hung, <-h.code)
	close(library.hold)
	require.NoError(t, h.commands.Close())
}

func TestTheEndOfCommandsEndsAHelperWhoseCallHangs(t *testing.T) {
	library := &fake{hold: make(chan struct{}), init: DriverNotLoaded}
	h := run(library, time.Hour)
	require.NoError(t, h.commands.Close())
	require.Equal(t, helper.Done, <-h.code)
	close(library.hold)
}

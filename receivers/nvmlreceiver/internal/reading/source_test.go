package reading

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a library without GPUs whose Init can wait.
type fake struct {
	nvml.Library
	init nvml.Code
	hold chan struct{} // Init waits for it
}

func (f *fake) Init() nvml.Code {
	if f.hold != nil {
		<-f.hold
	}
	return f.init
}
func (f *fake) Versions() (string, string, nvml.Code) { return "580", "13", nvml.OK }
func (f *fake) Count() (int, nvml.Code)               { return 0, nvml.OK }

// helper runs the program on a library.
type helper struct {
	commands *io.PipeWriter
	messages *wire.Reader
	code     chan int
}

func run(library nvml.Library, timeout time.Duration) *helper {
	in, commands := io.Pipe()
	messages, out := io.Pipe()
	h := &helper{commands: commands, messages: wire.NewReader(messages), code: make(chan int, 1)}
	options := worker.Options{CallTimeout: timeout, Commands: in, Messages: out}
	if library != nil {
		options.Source = NewSource(library, nvml.EventXid)
	}
	go func() {
		h.code <- worker.Run(options)
		_ = in.Close()
		_ = out.Close()
	}()
	return h
}

func (h *helper) next(t *testing.T) wire.Message {
	m, err := h.messages.Read()
	require.NoError(t, err)
	return m
}

func TestLibraryThatIsNotReadyEndsTheHelper(t *testing.T) {
	for want, library := range map[string]nvml.Library{
		wire.NoCgo: nil, wire.LibraryAbsent: &fake{init: nvml.LibraryNotFound}, wire.DriverNotLoaded: &fake{init: nvml.DriverNotLoaded},
		wire.Failed: &fake{init: nvml.VersionMismatch},
	} {
		t.Run(want, func(t *testing.T) {
			h := run(library, time.Hour)
			require.Equal(t, want, h.next(t).State.Name)
			require.Equal(t, worker.Done, <-h.code)
			require.NoError(t, h.commands.Close())
		})
	}
}

func TestAPollIsASnapshotAndTheEndOfCommandsIsTheEnd(t *testing.T) {
	h := run(&fake{}, time.Hour)
	state := h.next(t).State
	require.Equal(t, wire.Ready, state.Name)
	require.Equal(t, "580", state.Driver)
	require.False(t, state.Events, "no GPU can be listened to")
	_, err := io.WriteString(h.commands, "dance\n"+wire.Poll+"\n")
	require.NoError(t, err)
	require.NotNil(t, h.next(t).Snapshot)
	require.NoError(t, h.commands.Close())
	require.Equal(t, worker.Done, <-h.code)
}

func TestACallThatHangsIsNamed(t *testing.T) {
	library := &fake{hold: make(chan struct{}), init: nvml.DriverNotLoaded}
	h := run(library, 10*time.Millisecond)
	hung := h.next(t).Hung
	require.Equal(t, "init", hung.Call)
	require.GreaterOrEqual(t, hung.Seconds, 0.01)
	require.Equal(t, worker.Hung, <-h.code)
	close(library.hold)
	require.NoError(t, h.commands.Close())
}

func TestTheEndOfCommandsEndsAHelperWhoseCallHangs(t *testing.T) {
	library := &fake{hold: make(chan struct{}), init: nvml.DriverNotLoaded}
	h := run(library, time.Hour)
	require.NoError(t, h.commands.Close())
	require.Equal(t, worker.Done, <-h.code)
	close(library.hold)
}

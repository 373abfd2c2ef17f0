package record

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"
)

// statuses is a host that keeps what is reported to it.
type statuses struct{ events []*componentstatus.Event }

func (s *statuses) GetExtensions() map[component.ID]component.Component { return nil }
func (s *statuses) Report(e *componentstatus.Event)                     { s.events = append(s.events, e) }

func TestOnlyTheTwoModesPass(t *testing.T) {
	require.NoError(t, Propagate.Check())
	require.NoError(t, Ignore.Check())
	require.EqualError(t, ErrorMode("").Check(), `error_mode: "" is neither propagate nor ignore`)
}

func TestProbeThatDoesNotOpen(t *testing.T) {
	refuse := errors.New("refused")
	host := &statuses{}
	require.Equal(t, refuse, Propagate.NotOpened(host, zap.NewNop(), "sockets", refuse))
	require.Empty(t, host.events)
	require.NoError(t, Ignore.NotOpened(host, zap.NewNop(), "sockets", refuse))
	require.Len(t, host.events, 1)
	require.Equal(t, componentstatus.StatusPermanentError, host.events[0].Status())
	require.Equal(t, refuse, host.events[0].Err())
}

func TestProbeThatStops(t *testing.T) {
	refuse := errors.New("refused")
	for mode, want := range map[ErrorMode]componentstatus.Status{
		Propagate: componentstatus.StatusFatalError,
		Ignore:    componentstatus.StatusRecoverableError,
	} {
		host := &statuses{}
		mode.Stopped(host, zap.NewNop(), "sockets", componentstatus.NewRecoverableErrorEvent(refuse))
		require.Len(t, host.events, 1)
		require.Equal(t, want, host.events[0].Status())
		require.Equal(t, refuse, host.events[0].Err())
	}
}

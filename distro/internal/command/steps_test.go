package command

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheDefaultTakesSteps: training code sends the spans of its steps to what runs without
// a configuration.
func TestTheDefaultTakesSteps(t *testing.T) {
	s := newSender(t)
	agent := s.start(t)
	response, err := http.Post("http://"+s.otlp+"/v1/traces", "application/json", strings.NewReader(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"training.step",`+
		`"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7","startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, exitOK, agent.Stop(t, syscall.SIGTERM), agent.Stderr.String())
}

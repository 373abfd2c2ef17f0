package historyextension

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// beat is a heartbeat of an agent that began at a time, so long after the onset of incidents.
func beat(host string, began, at time.Duration, receivers ...heartbeat.Component) heartbeat.Beat {
	started := onset.Add(began)
	for i := range receivers {
		receivers[i].Since = started
	}
	return heartbeat.Beat{
		Host: host, Boot: "boot", Version: "1.2.3", Instance: host + started.String(), Started: started, At: onset.Add(at), Number: int64(at-began)/int64(time.Second) + 1, Receivers: receivers,
	}
}

func (b *bench) agentsNow(t *testing.T, query string) history.Agents {
	t.Helper()
	code, body := b.ask(t, http.MethodGet, "/v1/agents"+query, "")
	require.Equal(t, http.StatusOK, code, "%s", body)
	var told history.Agents
	require.NoError(t, json.Unmarshal(body, &told))
	return told
}

func TestAgentsAreListed(t *testing.T) {
	b := started(t)
	require.Equal(t, []heartbeat.Agent{}, b.agentsNow(t, "").Agents)
	page, _ := b.visit(t, "/")
	require.NotContains(t, page, "agents")
	works := heartbeat.Component{Name: "kernelevents", State: heartbeat.Works}
	fails := heartbeat.Component{Name: "gpu", State: heartbeat.Fails, Error: hostile}
	b.Hear(beat("node-1", 0, time.Hour, works))
	b.Hear(beat("node-2", 0, time.Hour, works, fails))
	b.late.Store(int64(10 * time.Minute))
	b.Hear(beat("node-1", 0, 70*time.Minute, works))
	told := b.agentsNow(t, "")
	require.Equal(t, heartbeat.Counts{Watching: 1, Silent: 1}, told.Counts)
	require.Equal(t, []string{"node-2", "node-1"}, []string{told.Agents[0].Host, told.Agents[1].Host}, "what needs a look comes first")
	require.True(t, b.agentsNow(t, "?limit=1").More)
	require.Len(t, b.agentsNow(t, "?node=node-1").Agents, 1)
	code, _ := b.ask(t, http.MethodGet, "/v1/agents?limit=0", "")
	require.Equal(t, http.StatusBadRequest, code)
	page, _ = b.visit(t, "/")
	require.Contains(t, page, "1 watching, 1 silent")
	require.Contains(t, page, "does not work: gpu")

	var status history.Status
	_, body := b.ask(t, http.MethodGet, "/v1/status", "")
	require.NoError(t, json.Unmarshal(body, &status))
	require.Equal(t, told.Counts, status.Agents)
	require.Len(t, status.WorstAgents, 2)
	for n := range 100 {
		b.Hear(beat(fmt.Sprintf("other-%d", n), 0, 70*time.Minute, works))
	}
	_, body = b.ask(t, http.MethodGet, "/v1/status", "")
	require.NoError(t, json.Unmarshal(body, &status))
	require.Len(t, status.WorstAgents, history.MaxStatusAgents)
	require.Equal(t, "node-2", status.WorstAgents[0].Host)
	require.Equal(t, 101, status.Agents.Watching)
}

// At a gateway "cannot see" and "not there" are told apart by what the agents of the machines
// told, and machine by machine.
func TestAReportSaysOnWhichMachinesSomebodyLooked(t *testing.T) {
	missing := []verdict.Missing{{Name: "lockup", Text: "a lockup", Sources: []string{"host.lockup"}}}
	works := heartbeat.Component{Name: "kernelevents", State: heartbeat.Works}
	for name, c := range map[string]struct {
		beats []heartbeat.Beat
		both  bool // it is about two machines
		kind  string
		why   string
	}{
		"no agent": {nil, false, incidentview.NotKnown, "whether kernelevents looked on node-1, its own agent knows"},
		"another machine's agent": {[]heartbeat.Beat{beat("node-3", -time.Hour, time.Hour, works)},
			false, incidentview.NotKnown, "whether kernelevents looked on node-1, its own agent knows"},
		"all looked": {[]heartbeat.Beat{beat("node-1", -time.Hour, 2*time.Hour, works), beat("node-2", -time.Hour, 2*time.Hour, works)},
			true, incidentview.NotThere, "kernelevents looked on node-1, node-2 all the time, and told nothing of it"},
		"one began late": {[]heartbeat.Beat{beat("node-1", 30*time.Minute, 2*time.Hour, works), beat("node-2", -time.Hour, 2*time.Hour, works)},
			true, incidentview.CannotSee, "node-1: not watched from 2026-11-20 14:02:11 to 2026-11-20 14:32:11 UTC; kernelevents looked on node-2 all the time, and told nothing of it"},
		"one has stopped": {[]heartbeat.Beat{beat("node-1", -time.Hour, -time.Minute, works), beat("node-1", 3*time.Hour, 4*time.Hour, works)},
			false, incidentview.CannotSee, "node-1: not watched from 2026-11-20 14:02:11 to 2026-11-20 16:02:11 UTC"},
		"does not work": {[]heartbeat.Beat{beat("node-1", -time.Hour, time.Hour, heartbeat.Component{Name: "kernelevents", State: heartbeat.Fails, Error: "no CAP_SYSLOG"})},
			false, incidentview.CannotSee, "node-1: kernelevents does not work there: no CAP_SYSLOG"},
		"runs none": {[]heartbeat.Beat{beat("node-1", -time.Hour, time.Hour, heartbeat.Component{Name: "gpu", State: heartbeat.Works})},
			false, incidentview.CannotSee, "node-1: its agent does not run kernelevents"},
		"one is not known": {[]heartbeat.Beat{beat("node-2", -time.Hour, 2*time.Hour, works)},
			true, incidentview.NotKnown, "node-1: no agent tells of it; kernelevents looked on node-2 all the time, and told nothing of it"},
	} {
		t.Run(name, func(t *testing.T) {
			b := started(t)
			one, two := lost("inc-1", "node-1"), lost("inc-1", "node-2")
			two.ID, two.Role, two.RootCause = "gpu_lost-inc-1b", verdict.Symptom, one.ID
			one.Missing, one.Updated = missing, onset.Add(2*time.Hour)
			incident := []verdict.Verdict{one}
			if c.both {
				incident = append(incident, two)
			}
			require.NoError(t, b.Keep(t.Context(), incident))
			for _, one := range c.beats {
				b.Hear(one)
			}
			got := b.reported(t, "inc-1").NotSeen[0]
			require.Equal(t, c.kind, got.Kind)
			require.Equal(t, c.why, got.Why)
		})
	}
}

// A job whose culprit is on no machine that is known is about the machines of its ranks.
func TestAReportOfAJobAsksTheAgentsOfItsRanks(t *testing.T) {
	b := started(t)
	var seen []history.Sighting
	for n := range 6 {
		seen = append(seen, history.Sighting{Run: "run-1", Job: "llm", Trust: verdict.Proven, Rank: n, World: 6, Host: fmt.Sprintf("node-%d", n), Began: onset.Add(-time.Hour), At: onset.Add(-time.Hour)})
	}
	require.NoError(t, b.Ranks(t.Context(), seen))
	v := lost("inc-1", "")
	v.Culprit, v.Run, v.Updated = map[string]string{"job": "llm"}, "run-1", onset.Add(2*time.Hour)
	v.Missing = []verdict.Missing{{Name: "lockup", Text: "a lockup", Sources: []string{"host.lockup"}}}
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{v}))
	for n := range 5 {
		b.Hear(beat(fmt.Sprintf("node-%d", n), -time.Hour, 2*time.Hour, heartbeat.Component{Name: "kernelevents", State: heartbeat.Works}))
	}
	got := b.reported(t, "inc-1").NotSeen[0]
	require.Equal(t, incidentview.NotKnown, got.Kind)
	require.Equal(t, "node-5: no agent tells of it; kernelevents looked on node-0, node-1, node-2 and 2 more all the time, and told nothing of it", got.Why)
	b.Hear(beat("node-5", time.Hour, 2*time.Hour, heartbeat.Component{Name: "kernelevents", State: heartbeat.Works}))
	got = b.reported(t, "inc-1").NotSeen[0]
	require.Equal(t, incidentview.CannotSee, got.Kind)
	require.Contains(t, got.Why, "node-5: not watched from 2026-11-20 14:02:11 to 2026-11-20 15:02:11 UTC; ")
}

package historyextension

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"

	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// reported is the report of an incident.
func (b *bench) reported(t *testing.T, id string) incidentview.View {
	t.Helper()
	code, body := b.ask(t, http.MethodGet, "/v1/incidents/"+id+"/report", "")
	require.Equal(t, http.StatusOK, code, "%s", body)
	v, err := incidentview.FromJSON(body)
	require.NoError(t, err)
	return v
}

// Faults are rare: that none was told says something where who would tell of it was at work,
// on the machine that is named.
func TestAReportSaysWhoLooked(t *testing.T) {
	b := started(t)
	receiver := func(name string) *componentstatus.InstanceID {
		return componentstatus.NewInstanceID(component.MustNewIDWithName(name, "own"), component.KindReceiver)
	}
	b.ComponentStatusChanged(receiver("kernelevents"), componentstatus.NewEvent(componentstatus.StatusOK))
	b.ComponentStatusChanged(receiver("gpu"), componentstatus.NewEvent(componentstatus.StatusOK))
	b.ComponentStatusChanged(receiver("gpu"), componentstatus.NewRecoverableErrorEvent(errors.New("no driver")))
	missing := []verdict.Missing{
		{Name: "lockup", Text: "a lockup", Sources: []string{"host.lockup"}}, {Name: "ecc", Text: "an ECC error", Sources: []string{"gpu.ecc"}},
		{Name: "dump", Text: "a dump", Sources: []string{"nccl.fr.collective"}}, {Name: "own", Text: "something of a site", Sources: []string{"site.own"}},
	}
	here, there := lost("inc-1", "node-17"), lost("inc-2", "node-18")
	here.Missing, here.Updated, there.Missing, there.Updated = missing, onset.Add(2*time.Hour), missing[:1], onset.Add(2*time.Hour)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{here, there}))

	found := map[string]incidentview.NotSeen{}
	for _, n := range b.reported(t, "inc-1").NotSeen {
		found[n.Text] = n
	}
	require.Equal(t, incidentview.NotThere, found["a lockup"].Kind)
	require.Regexp(t, `^kernelevents looked on node-17 since \d{4}-.* UTC, and told nothing of it$`, found["a lockup"].Why)
	require.Equal(t, incidentview.CannotSee, found["an ECC error"].Kind)
	require.Equal(t, "gpu/own does not work: no driver", found["an ECC error"].Why)
	require.Equal(t, incidentview.NotKnown, found["something of a site"].Kind)
	elsewhere := b.reported(t, "inc-2").NotSeen[0]
	require.Equal(t, incidentview.NotKnown, elsewhere.Kind)
	require.Equal(t, "whether kernelevents looked on node-18, its own agent knows", elsewhere.Why)

	b.ComponentStatusChanged(receiver("kernelevents"), componentstatus.NewEvent(componentstatus.StatusStopping))
	for _, n := range b.reported(t, "inc-1").NotSeen {
		if n.Text == "a lockup" {
			require.Equal(t, incidentview.CannotSee, n.Kind)
			require.Equal(t, "nothing on node-17 tells of it: that would be kernelevents", n.Why)
		}
	}
}

func TestAReportSaysWhatWasBefore(t *testing.T) {
	b := started(t)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-9", "node-17")}))
	require.Equal(t, &incidentview.Before{Kept: 1, Alike: []incidentview.Earlier{}}, b.reported(t, "inc-9").Before)
	page, _ := b.visit(t, "/incidents/inc-9")
	require.Contains(t, page, "None of the incidents that are kept is like it.")

	before, other := lost("inc-1", "node-17"), lost("inc-2", "node-17")
	before.Onset = onset.Add(-48 * time.Hour)
	over := onset.Add(-47 * time.Hour)
	before.Status, before.Resolved, before.Headline = verdict.Resolved, &over, hostile
	other.Pattern = "hbm_ecc"
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{before, other}))
	got := b.reported(t, "inc-9").Before
	require.Equal(t, 3, got.Kept)
	require.Equal(t, 1, got.Others)
	require.Len(t, got.Alike, 1)
	require.Equal(t, "inc-1", got.Alike[0].ID)
	require.Equal(t, "same job, same node", got.Alike[0].Shares)
	require.InDelta(t, 3600, got.Alike[0].Seconds, 0.001)
	page, _ = b.visit(t, "/incidents/inc-9")
	require.Contains(t, page, "same job, same node")
	require.Contains(t, page, "1 of another kind names the same node.")
}

package incidentview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// clusterWide is the receiver that looks at all machines from one: no agent has it.
	clusterWide = "k8sevents"
	// mostTellers bounds the emitters that are named.
	mostTellers = 4
	// mostTold bounds the machines that are named of those on which somebody looked, or nobody.
	mostTold = 3
)

// LookedAt says, by what the agents of machines told, whether one of these receivers looked on
// them from one moment to another; false where no agent told of any, or none could.
func LookedAt(agents *heartbeat.Book, hosts, who []string, from, to, now time.Time) (Feed, bool) {
	if slices.Contains(who, clusterWide) {
		return Feed{}, false
	}
	var looked, lacking, unknown []string
	for _, host := range hosts {
		name := safetext.Line(host)
		switch watch, why := agents.Looked(host, who, from, to, now); watch {
		case heartbeat.Looked:
			looked = append(looked, name)
		case heartbeat.LookedNot:
			lacking = append(lacking, name+": "+why)
		default:
			unknown = append(unknown, name+": "+why)
		}
	}
	names := strings.Join(who[:min(len(who), mostTellers)], " or ")
	saw := names + " looked on " + fewOf(looked) + " all the time, and told nothing of it"
	switch {
	case len(looked)+len(lacking) == 0:
		return Feed{}, false
	case len(lacking) > 0 && len(looked) > 0:
		return Feed{Kind: CannotSee, Why: fewOf(lacking) + "; " + saw}, true
	case len(lacking) > 0:
		return Feed{Kind: CannotSee, Why: fewOf(lacking)}, true
	case len(unknown) > 0:
		return Feed{Kind: NotKnown, Why: fewOf(unknown) + "; " + saw}, true
	}
	return Feed{Kind: NotThere, Why: saw}, true
}

// fewOf are the first of a list, and how many more there are.
func fewOf(list []string) string {
	text := strings.Join(list[:min(len(list), mostTold)], ", ")
	if more := len(list) - mostTold; more > 0 {
		text += fmt.Sprintf(" and %s more", verdict.Number(more))
	}
	return text
}

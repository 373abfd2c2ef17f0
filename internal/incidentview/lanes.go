package incidentview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// lanes are the rows of the timeline: what is near, the place of the cause, the places of
// what it led to, and the ranks that are alike.
func lanes(v *View, incident []verdict.Verdict, r *Records) []Lane {
	var list []Lane
	end := newest(incident)
	at := func(label, sub string) *Lane {
		i := slices.IndexFunc(list, func(l Lane) bool { return l.Label == label && l.Sub == sub })
		if i < 0 {
			list = append(list, Lane{Label: label, Sub: sub})
			i = len(list) - 1
		}
		return &list[i]
	}
	for _, n := range v.Near {
		if lane := at(n.Host, "near, not joined"); len(lane.Points) < mostBars {
			lane.Points = append(lane.Points, Point{At: n.At, Text: n.Event, Style: StyleNear})
		}
	}
	room := mostLanes
	if r != nil && len(r.ranks) > 0 {
		room--
	}
	for _, one := range incident {
		label, sub := placeOf(one)
		if len(list) >= room && !slices.ContainsFunc(list, func(l Lane) bool { return l.Label == label && l.Sub == sub }) {
			continue
		}
		if lane := at(label, sub); len(lane.Bars) < mostBars {
			lane.Bars = append(lane.Bars, bar(one, end))
		}
	}
	if r != nil {
		if levels, ranks := r.levels(); len(levels) > 0 {
			label := verdict.Number(ranks) + " ranks"
			if r.about.culprit >= 0 && r.ranks[r.about.culprit] != nil {
				label = verdict.Number(ranks) + " other ranks"
			}
			list = append(list, Lane{Label: label, Sub: "waiting, dead", Levels: levels})
		}
	}
	return list
}

// placeOf is the lane of a verdict: the machine, or else the job, and the thing that is meant.
func placeOf(v verdict.Verdict) (label, sub string) {
	label = cmp.Or(v.Culprit["host"], v.Culprit["node"])
	sub = strings.ReplaceAll(v.Pattern, "_", " ")
	if label == "" {
		if job := v.Culprit["job"]; job != "" {
			return job, sub
		}
		return sub, ""
	}
	for _, key := range []string{"mount", "gpu", "rank", "cgroup", "switch", "peer", "process"} {
		value := v.Culprit[key]
		switch {
		case value == "" || key == "mount" && v.Pattern != "fuse_stall" && v.Culprit["rank"] != "":
			continue
		case key == "gpu":
			return label + " · GPU " + value, sub
		case key == "rank":
			return label + " · rank " + value, sub
		}
		return label + " · " + value, sub
	}
	return label, sub
}

func bar(v verdict.Verdict, end time.Time) Bar {
	b := Bar{From: v.Onset, To: end, Open: true, Text: strings.ReplaceAll(v.Pattern, "_", " "), Style: StyleWait}
	if over := v.Updated; v.Onset.Equal(over) && v.Status == verdict.Open && len(v.Evidence) == 1 && v.Evidence[0].Count == 1 {
		b.To, b.Open = over, false // an event, which does not last
	}
	switch {
	case v.Role == verdict.RootCause:
		b.Style = StyleCause
	case slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Source == rule.EventExit }):
		b.Style = StyleDead
	}
	if v.Status == verdict.Resolved && v.Resolved != nil {
		b.To, b.Open = *v.Resolved, false
	}
	return b
}

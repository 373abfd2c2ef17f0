package verdict

import (
	"cmp"
	"slices"
)

// Incidents groups verdicts by incident, in the order of their onset. Within an
// incident the root cause comes first, then its symptoms by onset; of several
// revisions of one verdict only the newest is kept.
func Incidents(verdicts []Verdict) [][]Verdict {
	byIncident := map[string][]Verdict{}
	for i := range verdicts {
		id := verdicts[i].IncidentID
		byIncident[id] = append(byIncident[id], verdicts[i])
	}
	incidents := make([][]Verdict, 0, len(byIncident))
	for _, incident := range byIncident {
		incidents = append(incidents, Merge(nil, incident))
	}
	slices.SortFunc(incidents, func(a, b []Verdict) int { return byOnset(a[0], b[0]) })
	return incidents
}

// Merge returns one incident after news arrived: the newest revision of each
// verdict, root cause first, then symptoms by onset.
func Merge(before, news []Verdict) []Verdict {
	newest := map[string]Verdict{}
	for _, list := range [][]Verdict{before, news} {
		for _, v := range list {
			if known, ok := newest[v.ID]; !ok || v.Revision > known.Revision {
				newest[v.ID] = v
			}
		}
	}
	merged := make([]Verdict, 0, len(newest))
	for _, v := range newest {
		merged = append(merged, v)
	}
	slices.SortFunc(merged, func(a, b Verdict) int {
		if a.Role != b.Role {
			return cmp.Compare(a.Role, b.Role) // "root_cause" < "symptom"
		}
		return byOnset(a, b)
	})
	return merged
}

func byOnset(a, b Verdict) int {
	return cmp.Or(a.Onset.Compare(b.Onset), cmp.Compare(a.ID, b.ID))
}

package history

import "strings"

// places are what an incident can be about, as its culprit names it: the nearest first.
var places = []struct{ key, words string }{
	{"gpu", "GPU"}, {"mount", "mount"}, {"device", "device"}, {"server", "server"}, {"switch", "switch"}, {"peer", "peer"}, {"cgroup", "cgroup"},
}

// Alike says what two incidents of one kind have in common, "" for two that are not alike:
// "same mount, another node".
func Alike(a, b *Incident) string {
	if a.Pattern != b.Pattern || a.ID == b.ID || a.Drill != b.Drill {
		return ""
	}
	where := placeOf(a)
	same := where != "" && where == placeOf(b)
	var words []string
	for _, place := range places {
		if place.key == "gpu" && !same { // addresses of GPUs are the same on all nodes
			continue
		}
		if value := a.Culprit[place.key]; value != "" && value == b.Culprit[place.key] {
			words = append(words, "same "+place.words)
		}
	}
	job := a.Culprit["job"] != "" && a.Culprit["job"] == b.Culprit["job"] && a.Culprit["job_domain"] == b.Culprit["job_domain"]
	switch rank := a.Culprit["rank"]; {
	case job && rank != "" && rank == b.Culprit["rank"]:
		words = append(words, "same rank of the same job")
	case job:
		words = append(words, "same job")
	}
	switch {
	case same:
		words = append(words, "same node")
	case len(words) > 0 && where != "" && placeOf(b) != "":
		words = append(words, "another node")
	}
	return strings.Join(words, ", ")
}

// placeOf is the machine of an incident.
func placeOf(i *Incident) string {
	if host := i.Culprit["host"]; host != "" {
		return host
	}
	return i.Culprit["node"]
}

// Before are the incidents of some that are like one and began before it, in their order;
// others is how many of the rest name its node.
func Before(one *Incident, among []Incident) (alike []Incident, others int) {
	where := placeOf(one)
	for i := range among {
		other := &among[i]
		switch {
		case other.ID == one.ID || other.Drill != one.Drill:
		case other.Onset.Before(one.Onset) && Alike(one, other) != "":
			alike = append(alike, *other)
		case where != "" && where == placeOf(other):
			others++
		}
	}
	return alike, others
}

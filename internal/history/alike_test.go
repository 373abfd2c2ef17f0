package history

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func of(id, pattern string, minutes float64, culprit map[string]string) Incident {
	return Incident{ID: id, Pattern: pattern, Onset: after(minutes), Culprit: culprit}
}

func TestIncidentsThatAreAlike(t *testing.T) {
	one := of("1", "fuse_stall", 60, map[string]string{"host": "node-64", "mount": "/ckpt", "rank": "517", "job": "llm"})
	for name, c := range map[string]struct {
		other Incident
		want  string
	}{
		"the same again":        {of("2", "fuse_stall", 0, map[string]string{"host": "node-64", "mount": "/ckpt"}), "same mount, same node"},
		"another node":          {of("2", "fuse_stall", 0, map[string]string{"host": "node-31", "mount": "/ckpt"}), "same mount, another node"},
		"another mount":         {of("2", "fuse_stall", 0, map[string]string{"host": "node-64", "mount": "/data"}), "same node"},
		"the same rank":         {of("2", "fuse_stall", 0, map[string]string{"host": "node-31", "rank": "517", "job": "llm"}), "same rank of the same job, another node"},
		"a rank of another job": {of("2", "fuse_stall", 0, map[string]string{"host": "node-31", "rank": "517", "job": "vit"}), ""},
		"nothing in common":     {of("2", "fuse_stall", 0, map[string]string{"host": "node-31", "mount": "/data"}), ""},
		"another kind":          {of("2", "gpu_lost", 0, map[string]string{"host": "node-64", "mount": "/ckpt"}), ""},
		"a drill":               {Incident{ID: "2", Pattern: "fuse_stall", Drill: true, Culprit: one.Culprit}, ""},
		"itself":                {one, ""},
	} {
		require.Equal(t, c.want, Alike(&one, &c.other), name)
	}
	gpu := of("1", "gpu_lost", 60, map[string]string{"host": "node-1", "gpu": "0000:65:00.0"})
	far := of("2", "gpu_lost", 0, map[string]string{"host": "node-2", "gpu": "0000:65:00.0"})
	require.Empty(t, Alike(&gpu, &far), "addresses of GPUs are the same on all nodes")
}

func TestWhatWasBefore(t *testing.T) {
	place := map[string]string{"host": "node-64", "mount": "/ckpt"}
	one := of("now", "fuse_stall", 60, place)
	alike, others := Before(&one, []Incident{
		of("later", "fuse_stall", 70, place), one, of("other kind", "gpu_lost", 20, map[string]string{"host": "node-64"}), of("before", "fuse_stall", 10, place),
		of("elsewhere", "gpu_lost", 20, map[string]string{"host": "node-1"}), {ID: "drill", Pattern: "fuse_stall", Drill: true, Onset: after(5), Culprit: place},
	})
	require.Len(t, alike, 1)
	require.Equal(t, "before", alike[0].ID)
	require.Equal(t, 2, others, "the later one and the other kind")
}

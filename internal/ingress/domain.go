package ingress

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/peer"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

const domainKey = "gen_ai.training.job_domain"

// jobKeys name a job, the first before the second.
var jobKeys = [...]string{"gen_ai.training.job_id", "gen_ai.training.rendezvous"}

// speaker is a user of this machine, who sends over loopback. What he says of a job is about
// one of his own: a job is its id inside its domain.
type speaker struct {
	peer.Addr
	domains peer.Domains // nil where nobody knows the jobs of this machine
}

func (s *stage) speakerOf(info client.Info) speaker {
	from, _ := info.Addr.(peer.Addr)
	domains := s.domains.Load()
	if from.TCPAddr == nil || domains == nil {
		return speaker{}
	}
	return speaker{from, *domains}
}

// place puts the job that attributes name into its domain.
func (s speaker) place(attributes pcommon.Map) {
	if s.domains == nil {
		return
	}
	job := ""
	for _, key := range jobKeys {
		if value, ok := attributes.Get(key); ok && job == "" {
			job = value.AsString()
		}
	}
	if job == "" {
		return
	}
	domain := peer.Nobodys
	if !s.Gone {
		domain = s.domains.DomainOf(s.User, s.Cgroup, job)
	}
	if domain != "" {
		attributes.PutStr(domainKey, domain)
	}
}

// strangers are the attributes that name a pod or a container which is not the sender's. One outside
// of containers speaks for these where he is root, as a collector of logs is.
func (s speaker) strangers(attributes pcommon.Map) (keys []string) {
	if s.domains == nil {
		return nil
	}
	var own procfs.Membership
	if !strings.HasPrefix(s.Cgroup, procfs.UsersSlice) { // there anybody makes what he likes
		own = procfs.MembershipIn(s.Cgroup)
	}
	if s.User == 0 && !s.Gone && s.Cgroup != "" && own.PodUID == "" && own.ContainerID == "" {
		return nil
	}
	for key, its := range map[string]string{"k8s.pod.uid": own.PodUID, "container.id": own.ContainerID} {
		if value, ok := attributes.Get(key); ok && (s.Gone || its == "" || value.AsString() != its) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

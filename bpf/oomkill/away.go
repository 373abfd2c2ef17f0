//go:build linux && (amd64 || arm64)

package oomkill

import (
	"errors"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/pin"
)

// inherit lets what the probe has in the kernel outlive this process, and reads what earlier
// ones left.
func (p *Probe) inherit(root string) {
	offset, err := bootclock.Offset()
	if err != nil {
		p.report.Away.Err = err
		return
	}
	set := pin.Set{Ring: p.hooks.objects.Events, Dropped: p.hooks.objects.Dropped, Links: p.hooks.links}
	kept, away, err := pin.Keep(root, Name, p.hooks.layout, set, pin.Heir{Read: func(raw []byte) {
		e := Event{}
		switch err := decode(raw, p.code, offset, &e); {
		case err == nil:
			e.Late = true
			p.late = append(p.late, e) // no more than fit into a ring
		case !errors.Is(err, errDying):
			p.invalid.Add(1)
		}
	}})
	p.kept, p.report.Away, p.since = kept, away.Told(kept != nil, err), away.Seen()
}

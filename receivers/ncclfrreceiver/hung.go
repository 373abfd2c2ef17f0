package ncclfrreceiver

import (
	"fmt"
	"sync"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// hung counts the reads that go on, by user: those that were left behind, and the one of
// now. A user's file systems that never answer do not use up what is there for all.
type hung struct {
	mu sync.Mutex
	by map[string]int
}

// patiently runs a read of file for a domain.
func patiently[T any](r *roots, domain, file string, read func() (T, error)) (T, error) {
	if r.hung.of(domain) >= mostHung {
		var none T
		return none, fmt.Errorf("read %s: %w", file, procfs.ErrHung)
	}
	return procfs.Patiently(r.proc, file, func() (T, error) {
		r.hung.add(domain, 1)
		defer r.hung.add(domain, -1)
		return read()
	})
}

func (h *hung) of(domain string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[domain]
}

func (h *hung) add(domain string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[domain] += n; h.by[domain] == 0 {
		delete(h.by, domain)
	}
}

package command

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/history"
)

// listExits says how a command ends that lists what a history has kept.
const listExits = "Exit codes: 0 answered, also where nothing matches; 2 wrong usage; 1 there is no answer: tracecore is not reachable, or what\n" +
	"was asked for is not there."

// listing is how a command asks a running tracecore for a part of what its history has kept.
type listing struct {
	asking
	since, job, node string
	open             bool
	limit            int
}

// flags adds the options of the list; open says what --open leaves of it.
func (l *listing) flags(cmd *cobra.Command, open string) {
	l.asking.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&l.since, "since", "", "not what was over before: 90m, 12h, 7d, or 2026-12-01T08:00:00Z")
	flags.StringVar(&l.job, "job", "", "only this job")
	flags.StringVar(&l.node, "node", "", "only this host or Kubernetes node")
	flags.BoolVar(&l.open, "open", false, open)
	flags.IntVar(&l.limit, "limit", history.DefaultLimit, fmt.Sprintf("how many at most, up to %d", history.MaxLimit))
}

// query checks the options and writes them as the API takes them.
func (l *listing) query() (url.Values, error) {
	if l.since != "" {
		if _, err := history.ParseSince(l.since, time.Now()); err != nil {
			return nil, usage(fmt.Errorf("--%w", err))
		}
	}
	if l.limit < 1 || l.limit > history.MaxLimit {
		return nil, usage(fmt.Errorf("--limit %d: give a number from 1 to %d", l.limit, history.MaxLimit))
	}
	query := url.Values{"limit": {strconv.Itoa(l.limit)}}
	for name, value := range map[string]string{"since": l.since, "job": l.job, "node": l.node} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if l.open {
		query.Set("open", "true")
	}
	return query, nil
}

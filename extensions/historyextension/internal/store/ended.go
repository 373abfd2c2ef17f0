package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// settle is how long nothing new was heard of a run that ended before it is told of: ends
	// of its other ranks, and verdicts about its end, are on their way.
	settle = 30 * time.Second
	// mostEnded are told of at once.
	mostEnded = 16
	// mostOfARun bounds the verdicts that one summary is made of.
	mostOfARun = 4096
)

// Ended returns runs that ended and of which nobody has told, with their summaries.
func (s *Store) Ended(ctx context.Context) (runs []history.Run, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		if runs = nil; !s.ended {
			return nil
		}
		waiting, err := s.waiting(ctx)
		if err != nil {
			return err
		}
		until := s.options.Now().Add(-settle).UnixNano()
		s.ended = len(waiting) > 0
		for _, one := range waiting {
			key := runKey{one.run.Job, one.run.Domain, one.run.Trust, one.run.ID}
			if one.noted > until || s.telling[key] || len(runs) == mostEnded {
				continue
			}
			if one.run.Summary, err = s.summary(ctx, one.run); err != nil {
				return err
			}
			runs = append(runs, *one.run)
		}
		for i := range runs {
			s.telling[runKey{runs[i].Job, runs[i].Domain, runs[i].Trust, runs[i].ID}] = true
		}
		return nil
	})
	return runs, err
}

type endedRun struct {
	run   *history.Run
	noted int64
}

// waiting are the runs that ended and were not told of, the first that ended first. One
// that is damaged is forgotten.
func (s *Store) waiting(ctx context.Context) ([]endedRun, error) {
	rows, err := s.conn.QueryContext(ctx, "SELECT noted, body, sum FROM runs WHERE told = 0 AND open = 0 ORDER BY noted LIMIT ?", mostRuns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var waiting []endedRun
	damaged := 0
	for rows.Next() {
		var noted int64
		run, err := scanRun(after{rows, []any{&noted}})
		switch {
		case errors.Is(err, errDamagedRow):
			damaged++
		case err != nil:
			return nil, err
		default:
			waiting = append(waiting, endedRun{run, noted})
		}
	}
	s.options.Damaged(damaged)
	return waiting, rows.Err()
}

// after scans further columns that come before those of a scan.
type after struct {
	rows  *sql.Rows
	first []any
}

// Scan implements what scanRun and scanIncident need.
func (a after) Scan(to ...any) error { return a.rows.Scan(slices.Concat(a.first, to)...) }

// Told notes which summaries have left.
func (s *Store) Told(ctx context.Context, runs []history.Run, left bool) error {
	return s.do(context.WithoutCancel(ctx), func(ctx context.Context) error {
		err := s.tx(ctx, func(tx *sql.Tx) error {
			for i := range runs {
				if !left {
					break
				}
				if err := s.told(ctx, tx, &runs[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			for i := range runs {
				delete(s.telling, runKey{runs[i].Job, runs[i].Domain, runs[i].Trust, runs[i].ID})
			}
		}
		return err
	})
}

// told keeps what was told with the run, which may have changed meanwhile.
func (s *Store) told(ctx context.Context, tx *sql.Tx, told *history.Run) error {
	key := runKey{told.Job, told.Domain, told.Trust, told.ID}
	run, err := readRun(ctx, tx, key)
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, errDamagedRow) {
		return nil // it gave way
	}
	if err != nil {
		return err
	}
	run.Summary = told.Summary
	body, err := safetext.Marshal(run)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE runs SET told = 1, body = ?, sum = ?, bytes = ? WHERE job = ? AND domain = ? AND trust = ? AND run_id = ?",
		body, sum(body), len(body), key.job, key.domain, key.trust, key.run)
	return err
}

// summary makes the summary of a run of what is kept of its incidents.
func (s *Store) summary(ctx context.Context, run *history.Run) (*history.Summary, error) {
	of, err := s.verdictsOf(ctx, run)
	if err != nil {
		return nil, err
	}
	var stood []history.Stood
	incidents, slow := map[string]bool{}, map[int]time.Duration{}
	for i := range of {
		v, head := &of[i].verdict, &of[i].head
		incidents[head.ID] = true
		if v.Stands && v.Severity != verdict.Info {
			cause := v.Pattern
			if head.Causes() {
				cause = head.Pattern
			}
			stood = append(stood, history.Stood{From: v.Onset, To: endOf(v), Pattern: cause})
		}
		if rank, err := strconv.Atoi(v.Culprit["rank"]); err == nil && v.Pattern == straggler {
			slow[rank] += endOf(v).Sub(v.Onset)
		}
	}
	return history.Summarize(run, stood, len(incidents), slowest(slow)), nil
}

// straggler is the pattern that names the slowest rank of a job.
const straggler = "straggler"

func slowest(slow map[int]time.Duration) *int {
	var found *int
	for rank, took := range slow {
		if found == nil || took > slow[*found] || took == slow[*found] && rank < *found {
			found = &rank
		}
	}
	return found
}

// endOf is when what a verdict tells of ended; for ever, while it is open.
func endOf(v *verdict.Verdict) time.Time {
	if v.Status == verdict.Resolved && v.Resolved != nil {
		return *v.Resolved
	}
	return time.Unix(0, 1<<63-1)
}

// verdictOf is a verdict with the incident that it belongs to.
type verdictOf struct {
	verdict verdict.Verdict
	head    history.Incident
}

// otherRuns are the ids of the other runs of a job.
func (s *Store) otherRuns(ctx context.Context, run *history.Run) (map[string]bool, error) {
	rows, err := s.conn.QueryContext(ctx, "SELECT run_id FROM runs WHERE job = ? AND domain = ? AND run_id <> ?", run.Job, run.Domain, run.ID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	others := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		others[id] = true
	}
	return others, rows.Err()
}

// verdictsOf are the newest revisions of the verdicts about a run: they name its job and
// whose it is, and the run or none that is known; then what they tell of overlaps it. Drills are none.
func (s *Store) verdictsOf(ctx context.Context, run *history.Run) (found []verdictOf, err error) {
	others, err := s.otherRuns(ctx, run)
	if err != nil {
		return nil, err
	}
	rows, err := s.conn.QueryContext(ctx, `SELECT v.body, v.sum, i.summary, i.sum, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM verdicts v JOIN incidents i ON i.incident_id = v.incident_id
		WHERE v.latest = 1 AND v.incident_id IN (SELECT incident_id FROM about WHERE kind = 'job' AND name = ?) AND v.onset <= ?
		ORDER BY v.onset DESC, v.verdict_id LIMIT ?`, run.Job, run.Until().UnixNano(), mostOfARun)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	damaged := 0
	for rows.Next() {
		var body []byte
		var checksum int64
		head, err := scanIncident(after{rows, []any{&body, &checksum}})
		if err != nil && !errors.Is(err, errDamagedRow) {
			return nil, err
		}
		v, unread := readVerdict(body, checksum)
		switch {
		case err != nil || unread != nil:
			damaged++
		case isOf(&v, run, others):
			found = append(found, verdictOf{v, *head})
		}
	}
	s.options.Damaged(damaged)
	return found, rows.Err()
}

// isOf reports whether a verdict is about a run. Who is trusted less than what the run is
// known by says nothing of it. Time alone does not tell two runs apart: ranks of one outlive the
// begin of the next, and of two machines the one that begins first may be heard of last. One that
// names a run of another tracecore, which this one does not know, is told by time all the same.
func isOf(v *verdict.Verdict, run *history.Run, others map[string]bool) bool {
	return !v.Drill && bounded(v.Culprit["job"]) == run.Job && bounded(v.Culprit["job_domain"]) == run.Domain &&
		(v.Trust > verdict.Foreign || run.Trust == verdict.Foreign) && (v.Run == run.ID || !others[v.Run] && endOf(v).After(run.Began))
}

// Run returns a run with its incidents, the newest onset first. Of several of that id the
// one that is trusted most counts.
func (s *Store) Run(ctx context.Context, id string) (one history.OneRun, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		one = history.OneRun{Incidents: []history.Incident{}}
		run, err := scanRun(s.conn.QueryRowContext(ctx, "SELECT body, sum FROM runs WHERE run_id = ? ORDER BY trust DESC, updated DESC LIMIT 1", id))
		if errors.Is(err, sql.ErrNoRows) || errors.Is(err, errDamagedRow) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		one.Run = *run
		upTo := *run
		if run.Outcome == history.RunGoesOn {
			upTo.Updated = s.options.Now()
		}
		of, err := s.verdictsOf(ctx, &upTo)
		known := map[string]bool{}
		for i := range of {
			if head := of[i].head; !known[head.ID] {
				known[head.ID] = true
				one.Incidents = append(one.Incidents, head)
			}
		}
		slices.SortStableFunc(one.Incidents, func(a, b history.Incident) int { return b.Onset.Compare(a.Onset) })
		one.More = len(one.Incidents) > history.MaxOfARun
		one.Incidents = one.Incidents[:min(len(one.Incidents), history.MaxOfARun)]
		return err
	})
	return one, err
}

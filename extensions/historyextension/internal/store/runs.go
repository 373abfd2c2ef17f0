package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	mostRuns       = 4096
	mostOfAJob     = 64 // runs of one job, the newest
	shareOfRuns    = 8  // of MaxBytes
	mostRunNames   = 256
	mostRangeBytes = 64 << 10
)

// Ranks notes the begins and ends of ranks in one transaction.
func (s *Store) Ranks(ctx context.Context, seen []history.Sighting) error {
	return s.do(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return s.tx(ctx, func(tx *sql.Tx) error {
			order := []runKey{}
			groups := map[runKey][]history.Sighting{}
			for _, one := range seen {
				key := runKey{bounded(one.Job), bounded(one.Domain), one.Trust, bounded(one.Run)}
				if key.run == "" || key.job == "" || one.Rank < 0 || one.Rank > verdict.MaxRank {
					continue
				}
				if groups[key] == nil {
					order = append(order, key)
				}
				groups[key] = append(groups[key], one)
			}
			for _, key := range order {
				if err := s.noteRun(ctx, tx, key, groups[key]); err != nil {
					return err
				}
			}
			return s.fitRuns(ctx, tx)
		})
	})
}

func bounded(text string) string { return safetext.Clip(safetext.Line(text), mostRunNames) }

// runKey names a run.
type runKey struct {
	job, domain string
	trust       verdict.Trust
	run         string
}

func (s *Store) noteRun(ctx context.Context, tx *sql.Tx, key runKey, seen []history.Sighting) error {
	run, err := readRun(ctx, tx, key)
	if errors.Is(err, errDamagedRow) {
		s.options.Damaged(1)
	}
	if errors.Is(err, sql.ErrNoRows) && !slices.ContainsFunc(seen, func(one history.Sighting) bool { return one.Steps == nil }) {
		return nil // steps of a run that gave way
	}
	if err != nil {
		if !errors.Is(err, errDamagedRow) && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		run = &history.Run{ID: key.run, Job: key.job, Domain: key.domain, Trust: key.trust, Outcome: history.RunGoesOn, Hosts: []string{}}
	}
	began, ended := parseRanks(run.Ranks), parseRanks(run.EndedRanks)
	for i := range seen {
		noteRank(run, began, ended, &seen[i])
	}
	run.Ranks, run.RanksCount = ranges(began)
	run.EndedRanks, run.EndedCount = ranges(ended)
	conclude(run)
	if err := s.writeRun(ctx, tx, key, run); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM runs WHERE rowid IN (SELECT rowid FROM runs WHERE job = ? AND domain = ? AND trust = ?
		ORDER BY began DESC LIMIT -1 OFFSET ?)`, key.job, key.domain, key.trust, mostOfAJob); err != nil {
		return err
	}
	return s.followed(ctx, tx, key, run)
}

func readRun(ctx context.Context, tx *sql.Tx, key runKey) (*history.Run, error) {
	row := tx.QueryRowContext(ctx, "SELECT body, sum FROM runs WHERE job = ? AND domain = ? AND trust = ? AND run_id = ?", key.job, key.domain, key.trust, key.run)
	return scanRun(row)
}

func scanRun(row interface{ Scan(...any) error }) (*history.Run, error) {
	var body []byte
	var checksum int64
	if err := row.Scan(&body, &checksum); err != nil {
		return nil, err
	}
	run := &history.Run{}
	if sum(body) != checksum || json.Unmarshal(body, run) != nil {
		return nil, errDamagedRow
	}
	return run, nil
}

func (s *Store) writeRun(ctx context.Context, tx *sql.Tx, key runKey, run *history.Run) error {
	body, err := safetext.Marshal(run)
	if err != nil {
		return err
	}
	s.ended = s.ended || run.Outcome != history.RunGoesOn
	_, err = tx.ExecContext(ctx, `INSERT INTO runs (job, domain, trust, run_id, began, updated, open, bytes, sum, body, noted, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
		ON CONFLICT (job, domain, trust, run_id) DO UPDATE SET began = excluded.began, updated = excluded.updated, open = excluded.open,
		bytes = excluded.bytes, sum = excluded.sum, body = excluded.body, noted = excluded.noted`,
		key.job, key.domain, key.trust, key.run, run.Began.UnixNano(), run.Updated.UnixNano(), run.Outcome == history.RunGoesOn, len(body), sum(body), body,
		s.options.Now().UnixNano())
	return err
}

func noteRank(run *history.Run, began, ended map[int]bool, s *history.Sighting) {
	if s.Steps != nil {
		noteSteps(run, s.Steps)
		return
	}
	host := bounded(s.Host)
	began[s.Rank] = true
	if run.Began.IsZero() || s.Began.Before(run.Began) {
		run.Began = s.Began
	}
	if s.At.After(run.Updated) {
		run.Updated = s.At
	}
	run.WorldSize = max(run.WorldSize, s.World)
	if host != "" && len(run.Hosts) < history.MaxNames && !slices.Contains(run.Hosts, host) {
		run.Hosts = append(run.Hosts, host)
	}
	if !s.Ended {
		return
	}
	if s.Unseen && !ended[s.Rank] {
		run.Unseen++
	}
	ended[s.Rank] = true
	if run.Ended == nil || s.At.After(*run.Ended) {
		at := s.At
		run.Ended = &at
	}
	if s.Failed != "" && (run.First == nil || s.At.Before(run.First.At)) {
		run.First = &history.Death{Rank: s.Rank, Host: host, At: s.At, How: bounded(s.Failed)}
	}
}

// noteSteps notes how many steps a run has made, since the agent began to count.
func noteSteps(run *history.Run, told *history.Steps) {
	if run.Steps == nil || run.Steps.Last.Before(told.Last) {
		run.Steps = told
	}
}

// conclude says how a run stands.
func conclude(run *history.Run) {
	switch {
	case run.EndedCount < run.RanksCount:
		if run.Outcome != history.RunFollowed {
			run.Outcome = history.RunGoesOn
		}
	case run.First != nil:
		run.Outcome = history.RunFailed
	case run.Unseen > 0:
		run.Outcome = history.RunEnded
	default:
		run.Outcome = history.RunSucceeded
	}
}

// followed closes the runs of the same job that began before this one, and this one where
// it is not the last.
func (s *Store) followed(ctx context.Context, tx *sql.Tx, key runKey, run *history.Run) error {
	rows, err := tx.QueryContext(ctx, "SELECT body, sum FROM runs WHERE job = ? AND domain = ? AND trust = ? AND (open = 1 OR began > ?)", key.job, key.domain, key.trust, run.Began.UnixNano())
	if err != nil {
		return err
	}
	type successor struct {
		of *history.Run
		at time.Time
	}
	var older []successor
	for rows.Next() {
		other, err := scanRun(rows)
		switch {
		case errors.Is(err, errDamagedRow):
		case err != nil:
			return errors.Join(err, rows.Close())
		case other.Outcome == history.RunGoesOn && other.Began.Before(run.Began):
			older = append(older, successor{other, run.Began})
		case other.Began.After(run.Began) && run.Outcome == history.RunGoesOn:
			older = append(older, successor{run, other.Began})
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, one := range older {
		other := one.of
		if other.Outcome = history.RunFollowed; other.Followed == nil || one.at.Before(*other.Followed) {
			other.Followed = &one.at
		}
		if err := s.writeRun(ctx, tx, runKey{key.job, key.domain, key.trust, other.ID}, other); err != nil {
			return err
		}
	}
	return nil
}

// fitRuns keeps the runs within their bounds: too old ones leave, then the oldest of the
// domain that has most, what is trusted least first.
func (s *Store) fitRuns(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM runs WHERE updated < ?", s.options.Now().Add(-s.options.MaxAge).UnixNano()); err != nil {
		return err
	}
	for {
		var count, bytes int64
		if err := tx.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(bytes), 0) FROM runs").Scan(&count, &bytes); err != nil {
			return err
		}
		if count <= 1 || count <= mostRuns && bytes <= s.options.MaxBytes/shareOfRuns {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM runs WHERE rowid IN (SELECT r.rowid FROM runs r JOIN
			(SELECT trust, domain FROM runs GROUP BY trust, domain ORDER BY sum(bytes) / CASE trust WHEN 1 THEN 9 WHEN 0 THEN 3 ELSE 1 END DESC LIMIT 1) most
			ON r.trust = most.trust AND r.domain = most.domain ORDER BY r.updated LIMIT max(1, ?))`, count/64); err != nil {
			return err
		}
	}
}

// Runs returns those that a filter lets through, the newest first.
func (s *Store) Runs(ctx context.Context, f history.Filter) (found []history.Run, more bool, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = history.DefaultLimit
	}
	limit = min(limit, history.MaxLimit)
	err = s.do(ctx, func(ctx context.Context) error {
		found, more = []history.Run{}, false
		rows, err := s.conn.QueryContext(ctx, "SELECT body, sum FROM runs WHERE (? = '' OR job = ?1) AND (updated >= ? OR open = 1) AND (open = 1 OR NOT ?) ORDER BY began DESC, job, run_id",
			f.Job, sinceNano(f.Since), f.Open)
		if err != nil {
			return err
		}
		defer rows.Close()
		damaged := 0
		for rows.Next() && !more {
			run, err := scanRun(rows)
			switch {
			case errors.Is(err, errDamagedRow):
				damaged++
			case err != nil:
				return err
			case f.Node != "" && !slices.Contains(run.Hosts, f.Node):
			case len(found) == limit:
				more = true
			default:
				found = append(found, *run)
			}
		}
		s.options.Damaged(damaged)
		return rows.Err()
	})
	return found, more, err
}

func sinceNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// parseRanks reads ranges.
func parseRanks(text string) map[int]bool {
	ranks := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		for rank := from; err == nil && rank <= to && len(ranks) < verdict.MaxRanks; rank++ {
			ranks[rank] = true
		}
	}
	return ranks
}

// ranges writes ranks as ranges, at most verdict.MaxRanks of them.
func ranges(ranks map[int]bool) (text string, count int) {
	sorted := make([]int, 0, len(ranks))
	for rank := range ranks {
		sorted = append(sorted, rank)
	}
	slices.Sort(sorted)
	var b strings.Builder
	for i := 0; i < len(sorted) && i < verdict.MaxRanks && b.Len() < mostRangeBytes; {
		end := i
		for end+1 < len(sorted) && end+1 < verdict.MaxRanks && sorted[end+1] == sorted[end]+1 {
			end++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if end > i {
			fmt.Fprintf(&b, "-%d", sorted[end])
		}
		count += end - i + 1
		i = end + 1
	}
	return b.String(), count
}

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// ErrNotFound is an incident that is not kept, or no longer.
var ErrNotFound = history.ErrNotFound

// mostAnswerBytes bounds the verdicts of one answer.
const mostAnswerBytes = 16 << 20

// Incidents returns those that a filter lets through, the newest onset first, and whether
// there are more.
func (s *Store) Incidents(ctx context.Context, f history.Filter) (found []history.Incident, more bool, err error) {
	found = []history.Incident{}
	limit := f.Limit
	if limit <= 0 {
		limit = history.DefaultLimit
	}
	limit = min(limit, history.MaxLimit)
	err = s.do(ctx, func(ctx context.Context) error {
		found, more = found[:0], false
		query, args := listQuery(f)
		rows, err := s.conn.QueryContext(ctx, query, append(args, limit+1)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		damaged := 0
		for rows.Next() {
			i, err := scanIncident(rows)
			switch {
			case errors.Is(err, errDamagedRow):
				damaged++
			case err != nil:
				return err
			case len(found) == limit:
				more = true
			default:
				found = append(found, *i)
			}
		}
		s.options.Damaged(damaged)
		return rows.Err()
	})
	return found, more, err
}

const incidentColumns = "SELECT i.summary, i.sum, a.at, a.uid, a.note, m.at, m.until, m.uid, m.reason FROM incidents i " +
	"LEFT JOIN acknowledged a ON a.incident_id = i.incident_id LEFT JOIN muted m ON m.incident_id = i.incident_id"

func listQuery(f history.Filter) (query string, args []any) {
	var where []string
	if !f.Since.IsZero() {
		where, args = append(where, "(i.updated >= ? OR i.open = 1)"), append(args, f.Since.UnixNano())
	}
	if f.Open {
		where = append(where, "i.open = 1")
	}
	for _, about := range []struct{ kind, name string }{{"job", f.Job}, {"node", f.Node}} {
		if about.name != "" {
			where = append(where, "i.incident_id IN (SELECT incident_id FROM about WHERE kind = ? AND name = ?)")
			args = append(args, about.kind, about.name)
		}
	}
	query = incidentColumns
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return query + " ORDER BY i.onset DESC, i.incident_id LIMIT ?", args
}

// errDamagedRow is a row that is not what was written.
var errDamagedRow = errors.New("a stored row is not what was written")

func scanIncident(row interface{ Scan(...any) error }) (*history.Incident, error) {
	var summary []byte
	var checksum int64
	var at, uid, mutedAt, until, mutedBy sql.NullInt64
	var note, reason sql.NullString
	if err := row.Scan(&summary, &checksum, &at, &uid, &note, &mutedAt, &until, &mutedBy, &reason); err != nil {
		return nil, err
	}
	i := &history.Incident{}
	if sum(summary) != checksum || json.Unmarshal(summary, i) != nil {
		return nil, errDamagedRow
	}
	if at.Valid {
		i.Acknowledged = &history.Acknowledgement{At: time.Unix(0, at.Int64).UTC(), UID: uint32(uid.Int64), Note: safetext.Line(note.String)}
	}
	i.Muted = muteOf(mutedAt, until, mutedBy, reason)
	return i, nil
}

// Incident returns one with all its verdicts, and with all revisions where they are asked for.
// One whose verdicts belong to another now is that other.
func (s *Store) Incident(ctx context.Context, id string, revisions bool) (all history.Whole, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		all = history.Whole{Verdicts: []verdict.Verdict{}}
		id, err := whole(ctx, s.conn, id)
		if err != nil {
			return err
		}
		i, err := scanIncident(s.conn.QueryRowContext(ctx, incidentColumns+" WHERE i.incident_id = ?", id))
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if errors.Is(err, errDamagedRow) {
			s.options.Damaged(1)
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		all.Incident = *i
		return s.statements(ctx, id, revisions, &all)
	})
	return all, err
}

// current is the id of the incident that one belongs to now.
func current(ctx context.Context, q querier, id string) (string, error) {
	var became string
	err := q.QueryRowContext(ctx, "SELECT became FROM moved WHERE incident_id = ?", id).Scan(&became)
	if errors.Is(err, sql.ErrNoRows) {
		return id, nil
	}
	return became, err
}

// leastOfAnID is how much of an id must be given: as much as views show.
const leastOfAnID = 8

// ErrSeveral means that the beginning of an id is that of several incidents.
var ErrSeveral = errors.New("several incidents begin so: write more of the id")

// whole is the id of the incident that a person named by its id, or by how it begins.
func whole(ctx context.Context, q querier, given string) (string, error) {
	id, err := current(ctx, q, given)
	if err != nil || id != given || len(given) < leastOfAnID {
		return id, err
	}
	rows, err := q.QueryContext(ctx, `SELECT id FROM (
			SELECT incident_id AS id FROM incidents WHERE incident_id >= ?1 AND incident_id < ?1 || char(0x10ffff)
			UNION SELECT became FROM moved WHERE incident_id >= ?1 AND incident_id < ?1 || char(0x10ffff)
		) ORDER BY id <> ?1, id LIMIT 2`, given)
	if err != nil {
		return id, err
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		if err := rows.Scan(&id); err != nil {
			return given, err
		}
		found = append(found, id)
	}
	switch {
	case len(found) == 0 || found[0] == given:
		return given, rows.Err()
	case len(found) > 1:
		return given, ErrSeveral
	}
	return found[0], rows.Err()
}

// statements reads the verdicts of an incident, and their revisions.
func (s *Store) statements(ctx context.Context, id string, revisions bool, whole *history.Whole) error {
	rows, err := s.conn.QueryContext(ctx, `SELECT latest, kept, sum, body FROM verdicts WHERE incident_id = ?1 AND (latest = 1 OR ?2)
		ORDER BY latest DESC, CASE latest WHEN 1 THEN role END, CASE latest WHEN 1 THEN onset END, number`, id, revisions)
	if err != nil {
		return err
	}
	defer rows.Close()
	size, damaged := 0, 0
	var newest []history.Revision
	for rows.Next() {
		var latest bool
		var kept, checksum int64
		var body []byte
		if err := rows.Scan(&latest, &kept, &checksum, &body); err != nil {
			return err
		}
		if size += len(body); size > mostAnswerBytes {
			whole.Cut = true
			break
		}
		v, err := readVerdict(body, checksum)
		if err != nil {
			damaged++
			continue
		}
		r := history.Revision{Kept: time.Unix(0, kept).UTC(), Verdict: v}
		if latest {
			whole.Verdicts, newest = append(whole.Verdicts, v), append(newest, r)
		} else {
			whole.Revisions = append(whole.Revisions, r)
		}
	}
	s.options.Damaged(damaged)
	whole.Verdicts = verdict.Merge(nil, whole.Verdicts)
	if revisions {
		whole.Revisions = append(whole.Revisions, newest...)
		history.SortRevisions(whole.Revisions)
	}
	return rows.Err()
}

// Acknowledge notes that a person has seen an incident.
func (s *Store) Acknowledge(ctx context.Context, id string, a history.Acknowledgement) error {
	return s.do(context.WithoutCancel(ctx), func(ctx context.Context) error {
		id, err := whole(ctx, s.conn, id)
		if err != nil {
			return err
		}
		result, err := s.conn.ExecContext(ctx, `INSERT OR REPLACE INTO acknowledged (incident_id, at, uid, note)
			SELECT incident_id, ?, ?, ? FROM incidents WHERE incident_id = ?`, a.At.UnixNano(), a.UID, a.Note, id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(ErrNotFound, err)
		}
		return nil
	})
}

// Summary is what the file holds.
type Summary struct {
	Bytes     int64 // of the file that hold something
	Incidents int
	Open      int // incidents
	// RootCauses are open incidents with a cause that is certain; no drills.
	RootCauses int
}

// Summary counts.
func (s *Store) Summary(ctx context.Context) (sum Summary, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		var err error
		if sum.Bytes, err = used(ctx, s.conn); err != nil {
			return err
		}
		return s.conn.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(open), 0), coalesce(sum(open AND causes), 0) FROM incidents").
			Scan(&sum.Incidents, &sum.Open, &sum.RootCauses)
	})
	return sum, err
}

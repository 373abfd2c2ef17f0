package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// ownerNames is how many names say whose room an incident takes.
const ownerNames = 5

// ownerOf is whose room an incident takes, as in the engine and in the outbox of the
// patterns: what is trusted more gives way last, then the machine, pattern and job that
// have most give way first.
func ownerOf(head *verdict.Verdict) []string {
	c := head.Culprit
	return timeline.Path(head.Trust, []string{cmp.Or(c["node"], c["host"]), head.Pattern, c["job_domain"], c["job"]})
}

// worthOf is how much an incident matters where one of the same owner has to go.
func worthOf(head *verdict.Verdict) fairlru.Worth {
	status, _ := head.Incident()
	switch {
	case head.Confidence == verdict.Partial || head.Severity == verdict.Info || head.Drill:
		return fairlru.Little
	case status == verdict.Open:
		return fairlru.Much
	}
	return fairlru.Some
}

func readOwner(text string) ([]string, error) {
	var owner []string
	if err := json.Unmarshal([]byte(text), &owner); err != nil || len(owner) != ownerNames {
		return nil, fmt.Errorf("%w: an owner is %.40q", errUnusable, text)
	}
	return owner, nil
}

// place enters an incident into the order of those that give way, as the newest.
func (s *Store) place(id string, owner []string, worth fairlru.Worth, bytes int64) {
	if before := s.places[id]; before != nil {
		s.order.Remove(before)
	}
	s.places[id] = s.order.Add(id, worth, owner...)
	s.order.Resize(s.places[id], 1+int(bytes/pageBytes))
}

func (s *Store) unplace(id string) {
	if place := s.places[id]; place != nil {
		s.order.Remove(place)
		delete(s.places, id)
	}
}

// used is how many bytes of the file hold something.
func used(ctx context.Context, q querier) (int64, error) {
	var pages, free int64
	if err := q.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
		return 0, err
	}
	err := q.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free)
	return (pages - free) * pageBytes, err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// makeRoom removes incidents until what is used leaves a tenth of MaxBytes free. It returns
// those that are gone; the order of those that give way has lost them already.
func (s *Store) makeRoom(ctx context.Context, tx *sql.Tx) (gone int, err error) {
	for len(s.places) > 0 {
		has, err := used(ctx, tx)
		if err != nil {
			return gone, err
		}
		most := s.options.MaxBytes / 10 * 9
		if has <= most {
			return gone, nil
		}
		for freed := int64(0); freed < has-most && len(s.places) > 0; gone++ {
			victim, _ := s.order.Victim()
			bytes, err := s.remove(ctx, tx, victim.Value)
			if err != nil {
				return gone, err
			}
			freed += max(bytes, pageBytes)
		}
	}
	return gone, nil
}

// sizeOf is how many bytes an incident has: its verdicts and its evidence.
func sizeOf(ctx context.Context, q querier, id string) (bytes int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT coalesce((SELECT sum(bytes) FROM verdicts WHERE incident_id = ?1), 0) +
		coalesce((SELECT bytes FROM evidence WHERE incident_id = ?1), 0)`, id).Scan(&bytes)
	return bytes, err
}

// remove forgets an incident and returns how many bytes it had.
func (s *Store) remove(ctx context.Context, tx *sql.Tx, id string) (bytes int64, err error) {
	s.unplace(id)
	if bytes, err = sizeOf(ctx, tx, id); err != nil {
		return 0, err
	}
	for _, statement := range []string{
		"DELETE FROM verdicts WHERE incident_id = ?",
		"DELETE FROM incidents WHERE incident_id = ?",
		"DELETE FROM about WHERE incident_id = ?",
		"DELETE FROM moved WHERE became = ?",
		"DELETE FROM acknowledged WHERE incident_id = ?",
		"DELETE FROM muted WHERE incident_id = ?",
		"DELETE FROM evidence WHERE incident_id = ?",
	} {
		if _, err := tx.ExecContext(ctx, statement, id); err != nil {
			return 0, err
		}
	}
	return bytes, nil
}

// escapedPath makes a path part of a file: URI (sqlite.org/uri.html).
func escapedPath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

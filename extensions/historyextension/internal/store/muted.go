package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// mostMutes are in force at once.
const mostMutes = 256

// ErrTooMany means that there is no room for another mute.
var ErrTooMany = errors.New("too many incidents are muted: end a mute first")

// Mute keeps an incident from being told until a time; until is zero to end it.
func (s *Store) Mute(ctx context.Context, id string, m history.Mute) error {
	return s.do(context.WithoutCancel(ctx), func(ctx context.Context) error {
		id, err := whole(ctx, s.conn, id)
		if err != nil {
			return err
		}
		var there, others int
		err = s.conn.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM incidents WHERE incident_id = ?1), (SELECT count(*) FROM muted WHERE until > ?2 AND incident_id <> ?1)`,
			id, s.options.Now().UnixNano()).Scan(&there, &others)
		switch {
		case err != nil:
			return err
		case there == 0:
			return ErrNotFound
		case m.Until.IsZero():
			_, err = s.conn.ExecContext(ctx, "DELETE FROM muted WHERE incident_id = ?", id)
		case others >= mostMutes:
			return ErrTooMany
		default:
			_, err = s.conn.ExecContext(ctx, "INSERT OR REPLACE INTO muted (incident_id, at, until, uid, reason) VALUES (?, ?, ?, ?, ?)",
				id, m.At.UnixNano(), m.Until.UnixNano(), m.UID, m.Reason)
		}
		if err == nil {
			err = s.loadMutes(ctx)
		}
		return err
	})
}

// Mutes returns those that are in force, by incident. It asks no disk once the file is open.
func (s *Store) Mutes(ctx context.Context) (map[string]history.Mute, error) {
	inForce := map[string]history.Mute{}
	err := s.do(ctx, func(context.Context) error {
		now := s.options.Now()
		for id, m := range s.mutes {
			if now.Before(m.Until) {
				inForce[id] = m
			}
		}
		return nil
	})
	return inForce, err
}

// loadMutes reads those that have not ended, and forgets the others.
func (s *Store) loadMutes(ctx context.Context) error {
	s.mutes = map[string]history.Mute{}
	if _, err := s.conn.ExecContext(ctx, "DELETE FROM muted WHERE until <= ?", s.options.Now().UnixNano()); err != nil {
		return err
	}
	rows, err := s.conn.QueryContext(ctx, "SELECT incident_id, at, until, uid, reason FROM muted LIMIT ?", 2*mostMutes)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var at, until, uid sql.NullInt64
		var reason sql.NullString
		if err := rows.Scan(&id, &at, &until, &uid, &reason); err != nil {
			return err
		}
		s.mutes[id] = *muteOf(at, until, uid, reason)
	}
	return rows.Err()
}

// muteOf is a mute as its columns have it, nil for none.
func muteOf(at, until, uid sql.NullInt64, reason sql.NullString) *history.Mute {
	if !until.Valid {
		return nil
	}
	return &history.Mute{At: time.Unix(0, at.Int64).UTC(), Until: time.Unix(0, until.Int64).UTC(), UID: uint32(uid.Int64), Reason: safetext.Line(reason.String)} //nolint:gosec // it was one
}

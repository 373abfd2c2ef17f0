package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tracecoreai/tracecore/internal/history"
)

const (
	// evidenceShare is the part of MaxBytes that the evidence of one incident may take.
	evidenceShare = 64
	// mostEvidence is what it may take of the largest file.
	mostEvidence = 1 << 20
)

func (s *Store) evidenceRoom() int { return int(min(s.options.MaxBytes/evidenceShare, mostEvidence)) }

// KeepEvidence commits the evidence of an incident, in place of what it had.
func (s *Store) KeepEvidence(ctx context.Context, id string, evidence []byte) error {
	if len(evidence) > s.evidenceRoom() {
		return fmt.Errorf("evidence of %d bytes, an incident has room for %d", len(evidence), s.evidenceRoom())
	}
	return s.commit(ctx, func(ctx context.Context, tx *sql.Tx, b *batch) error {
		id, err := current(ctx, tx, id)
		if err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO evidence (incident_id, bytes, sum, body)
			SELECT incident_id, ?, ?, ? FROM incidents WHERE incident_id = ?`, len(evidence), sum(evidence), evidence, id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(history.ErrNotFound, err)
		}
		b.touched[id] = true
		return nil
	})
}

// Evidence returns that of an incident, nil for none.
func (s *Store) Evidence(ctx context.Context, id string) (evidence []byte, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		var body []byte
		var checksum int64
		err := s.conn.QueryRowContext(ctx, "SELECT sum, body FROM evidence WHERE incident_id = ?", id).Scan(&checksum, &body)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case sum(body) != checksum:
			s.options.Damaged(1)
			return nil
		}
		evidence = bytes.Clone(body)
		return nil
	})
	return evidence, err
}

// Recall returns what is kept of an incident.
func (s *Store) Recall(ctx context.Context, id string) (history.Recalled, error) {
	whole, err := s.Incident(ctx, id, false)
	if err != nil {
		return history.Recalled{}, err
	}
	evidence, err := s.Evidence(ctx, whole.Incident.ID)
	return history.Recalled{Incident: whole.Incident.ID, Verdicts: whole.Verdicts, Evidence: evidence, Room: s.evidenceRoom()}, err
}

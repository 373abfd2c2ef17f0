package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// shareOfOne is the part of MaxBytes that one incident may take.
	shareOfOne = 8
	// ageEvery is how often it is looked for incidents that are too old.
	ageEvery = time.Minute
	// mostAtOnce bounds what is removed for its age in one transaction.
	mostAtOnce = 100
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(body []byte) int64 { return int64(crc32.Checksum(body, castagnoli)) }

// Keep commits verdicts in one transaction: nil means that a kill of the process does not
// take them.
func (s *Store) Keep(ctx context.Context, verdicts []verdict.Verdict) error {
	return s.commit(ctx, func(ctx context.Context, tx *sql.Tx, b *batch) error {
		for i := range verdicts {
			if err := b.insert(ctx, tx, &verdicts[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// commit makes one transaction of what write does and of what follows from it.
func (s *Store) commit(ctx context.Context, write func(context.Context, *sql.Tx, *batch) error) error {
	return s.do(context.WithoutCancel(ctx), func(ctx context.Context) error {
		b := batch{store: s, touched: map[string]bool{}}
		err := s.tx(ctx, func(tx *sql.Tx) error {
			if err := write(ctx, tx, &b); err != nil {
				return err
			}
			return b.finish(ctx, tx)
		})
		if err != nil {
			return err // the file is closed, and the order is loaded with it again
		}
		if len(s.mutes) > 0 { // an incident may have become part of another, or have gone
			if err := s.loadMutes(ctx); err != nil {
				return err
			}
		}
		s.options.Evicted(b.evicted)
		s.options.Cut(b.cut)
		s.options.Damaged(b.damaged)
		if b.evicted > 0 {
			_, err = s.conn.ExecContext(ctx, "PRAGMA incremental_vacuum(256)")
		}
		return err
	})
}

// batch is one transaction.
type batch struct {
	store        *Store
	touched      map[string]bool // incidents
	evicted, cut int
	damaged      int
}

// finish makes the rows of the incidents that were touched, and room.
func (b *batch) finish(ctx context.Context, tx *sql.Tx) error {
	for _, id := range slices.Sorted(maps.Keys(b.touched)) {
		if err := b.summarize(ctx, tx, id); err != nil {
			return err
		}
	}
	if err := b.age(ctx, tx); err != nil {
		return err
	}
	gone, err := b.store.makeRoom(ctx, tx)
	b.evicted += gone
	return err
}

// known is the newest revision of a verdict that is kept.
type known struct {
	number, revision, updated int64
	incident                  string
}

func (b *batch) insert(ctx context.Context, tx *sql.Tx, v *verdict.Verdict) error {
	body := verdict.ToJSON(*v)
	var old known
	err := tx.QueryRowContext(ctx, "SELECT number, revision, updated, incident_id FROM verdicts WHERE verdict_id = ? AND latest = 1", v.ID).
		Scan(&old.number, &old.revision, &old.updated, &old.incident)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	// Statements come in order. A detector that lost its state counts its revisions anew.
	updated := v.Updated.UnixNano()
	newest := int64(v.Revision) >= old.revision || updated >= old.updated
	result, err := tx.ExecContext(ctx, `INSERT INTO verdicts
		(verdict_id, revision, incident_id, latest, role, onset, updated, kept, bytes, sum, body) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (verdict_id, revision) DO UPDATE SET incident_id = excluded.incident_id, role = excluded.role, onset = excluded.onset,
		updated = excluded.updated, kept = excluded.kept, bytes = excluded.bytes, sum = excluded.sum, body = excluded.body
		WHERE excluded.updated > verdicts.updated`,
		v.ID, v.Revision, v.IncidentID, string(v.Role), v.Onset.UnixNano(), updated, b.store.options.Now().UnixNano(), len(body), sum(body), body)
	if err != nil {
		return err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == 0 {
		return err // kept before
	}
	b.touched[v.IncidentID] = true
	if err := b.about(ctx, tx, v); err != nil {
		return err
	}
	if !newest {
		return nil
	}
	if old.number != 0 {
		if _, err := tx.ExecContext(ctx, "UPDATE verdicts SET latest = 0 WHERE verdict_id = ? AND latest = 1", v.ID); err != nil {
			return err
		}
		if old.incident != v.IncidentID {
			if err := b.move(ctx, tx, old.incident, v); err != nil {
				return err
			}
		}
	}
	_, err = tx.ExecContext(ctx, "UPDATE verdicts SET latest = 1 WHERE verdict_id = ? AND revision = ?", v.ID, v.Revision)
	return err
}

// mostAbout bounds the jobs and nodes by which one incident is found.
const mostAbout = 1024

// about notes which job and nodes a verdict names.
func (b *batch) about(ctx context.Context, tx *sql.Tx, v *verdict.Verdict) error {
	for _, n := range []struct{ kind, name string }{{"job", v.Culprit["job"]}, {"node", v.Culprit["host"]}, {"node", v.Culprit["node"]}} {
		if n.name == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO about (kind, name, incident_id) SELECT ?1, ?2, ?3
			WHERE (SELECT count(*) FROM about WHERE incident_id = ?3) < ?4`, n.kind, n.name, v.IncidentID, mostAbout); err != nil {
			return err
		}
	}
	return nil
}

// move takes the earlier revisions of a verdict along into the incident that it belongs to
// now: a cause was found.
func (b *batch) move(ctx context.Context, tx *sql.Tx, from string, v *verdict.Verdict) error {
	b.touched[from] = true
	_, err := tx.ExecContext(ctx, "UPDATE verdicts SET incident_id = ? WHERE verdict_id = ?", v.IncidentID, v.ID)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO moved (incident_id, became) VALUES (?, ?)", from, v.IncidentID)
	return err
}

// summarize makes the row of an incident from its verdicts.
func (b *batch) summarize(ctx context.Context, tx *sql.Tx, id string) error {
	if err := b.fit(ctx, tx, id); err != nil {
		return err
	}
	i, head, err := b.incidentOf(ctx, tx, id)
	if errors.Is(err, ErrNotFound) { // its verdicts belong to another now
		return b.becameAnother(ctx, tx, id)
	}
	if err != nil {
		return err
	}
	summary, err := safetext.Marshal(i)
	if err != nil {
		return err
	}
	owner := ownerOf(head)
	text, err := json.Marshal(owner)
	if err != nil {
		return err
	}
	size, err := sizeOf(ctx, tx, id)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO incidents (incident_id, open, causes, onset, updated, worth, owner, bytes, sum, summary)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		id, i.Status == verdict.Open, i.Causes(), i.Onset.UnixNano(), i.Updated.UnixNano(), worthOf(head), string(text), size, sum(summary), summary)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM moved WHERE incident_id = ?", id); err != nil {
		return err
	}
	b.store.place(id, owner, worthOf(head), size)
	return nil
}

// becameAnother leaves of an incident without verdicts only the word where they are, and
// the acknowledgement with them.
func (b *batch) becameAnother(ctx context.Context, tx *sql.Tx, id string) error {
	b.store.unplace(id)
	for _, statement := range []string{
		"UPDATE OR IGNORE acknowledged SET incident_id = (SELECT became FROM moved WHERE incident_id = ?1) WHERE incident_id = ?1",
		"DELETE FROM acknowledged WHERE incident_id = ?1",
		"UPDATE OR IGNORE muted SET incident_id = (SELECT became FROM moved WHERE incident_id = ?1) WHERE incident_id = ?1",
		"DELETE FROM muted WHERE incident_id = ?1",
		"UPDATE OR IGNORE evidence SET incident_id = (SELECT became FROM moved WHERE incident_id = ?1) WHERE incident_id = ?1",
		"DELETE FROM evidence WHERE incident_id = ?1",
		"UPDATE moved SET became = (SELECT became FROM moved WHERE incident_id = ?1) WHERE became = ?1",
		"DELETE FROM incidents WHERE incident_id = ?1",
		"DELETE FROM about WHERE incident_id = ?1",
	} {
		if _, err := tx.ExecContext(ctx, statement, id); err != nil {
			return err
		}
	}
	return nil
}

// fit keeps one incident from filling the file: older revisions go first, then symptoms
// that were not heard of for longest. Its head stays.
func (b *batch) fit(ctx context.Context, tx *sql.Tx, id string) error {
	most := b.store.options.MaxBytes / shareOfOne
	var size int64
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(sum(bytes), 0) FROM verdicts WHERE incident_id = ?", id).Scan(&size); err != nil {
		return err
	}
	if size <= most {
		return nil
	}
	rows, err := tx.QueryContext(ctx, "SELECT number, bytes FROM verdicts WHERE incident_id = ? ORDER BY latest, role DESC, updated, number", id)
	if err != nil {
		return err
	}
	var numbers []int64
	for size > most/4*3 && rows.Next() {
		var number, has int64
		if err := rows.Scan(&number, &has); err != nil {
			return errors.Join(err, rows.Close())
		}
		numbers, size = append(numbers, number), size-has
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	b.cut += len(numbers)
	for _, number := range numbers {
		if _, err := tx.ExecContext(ctx, `DELETE FROM verdicts WHERE number = ?1 AND number IS NOT
			(SELECT number FROM verdicts WHERE incident_id = ?2 AND latest = 1 ORDER BY role, onset, verdict_id LIMIT 1)`, number, id); err != nil {
			return err
		}
	}
	return nil
}

// age removes what was not heard of for longer than MaxAge.
func (b *batch) age(ctx context.Context, tx *sql.Tx) error {
	now := b.store.options.Now()
	if since := now.Sub(b.store.lastAged); since >= 0 && since < ageEvery {
		return nil
	}
	b.store.lastAged = now
	rows, err := tx.QueryContext(ctx, "SELECT incident_id FROM incidents WHERE updated < ? ORDER BY updated LIMIT ?", now.Add(-b.store.options.MaxAge).UnixNano(), mostAtOnce)
	if err != nil {
		return err
	}
	var old []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return errors.Join(err, rows.Close())
		}
		old = append(old, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, id := range old {
		if _, err := b.store.remove(ctx, tx, id); err != nil {
			return err
		}
	}
	return nil
}

// incidentOf makes an incident of its stored verdicts.
func (b *batch) incidentOf(ctx context.Context, tx *sql.Tx, id string) (*history.Incident, *verdict.Verdict, error) {
	head, err := b.head(ctx, tx, id)
	if err != nil {
		return nil, nil, err
	}
	status, ended := head.Incident()
	i := &history.Incident{
		ID: id, Role: head.Role, Status: status, Severity: head.Severity, Confidence: head.Confidence, Trust: head.Trust,
		Pattern: head.Pattern, Headline: head.Headline, Culprit: head.Culprit, Drill: head.Drill, Onset: head.Onset, Resolved: ended,
	}
	var updated int64
	err = tx.QueryRowContext(ctx, "SELECT count(*), max(updated) FROM verdicts WHERE incident_id = ? AND latest = 1", id).Scan(&i.Verdicts, &updated)
	if err != nil {
		return nil, nil, err
	}
	i.Updated = time.Unix(0, updated).UTC()
	if i.Jobs, err = names(ctx, tx, id, "job"); err != nil {
		return nil, nil, err
	}
	i.Nodes, err = names(ctx, tx, id, "node")
	return i, head, err
}

// head is the first verdict of an incident. One that is damaged is forgotten.
func (b *batch) head(ctx context.Context, tx *sql.Tx, id string) (*verdict.Verdict, error) {
	for {
		var body []byte
		var number, checksum int64
		err := tx.QueryRowContext(ctx, "SELECT number, body, sum FROM verdicts WHERE incident_id = ? AND latest = 1 ORDER BY role, onset, verdict_id LIMIT 1", id).
			Scan(&number, &body, &checksum)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, ErrNotFound
		}
		if err != nil {
			return nil, err
		}
		if head, err := readVerdict(body, checksum); err == nil {
			return &head, nil
		}
		b.damaged++
		if _, err := tx.ExecContext(ctx, "DELETE FROM verdicts WHERE number = ?", number); err != nil {
			return nil, err
		}
	}
}

func names(ctx context.Context, tx querier, id, kind string) ([]string, error) {
	rows, err := tx.QueryContext(ctx, "SELECT name FROM about WHERE incident_id = ? AND kind = ? ORDER BY name LIMIT ?", id, kind, history.MaxNames)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := []string{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		found = append(found, name)
	}
	return found, rows.Err()
}

// readVerdict reads a body that has its checksum.
func readVerdict(body []byte, checksum int64) (verdict.Verdict, error) {
	if sum(body) != checksum {
		return verdict.Verdict{}, errors.New("a stored verdict is not what was written")
	}
	return verdict.FromJSON(bytes.Clone(body))
}

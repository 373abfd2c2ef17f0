// Package store keeps incidents in one SQLite file. Whatever happens to the file costs
// what was in it and nothing else: it is set aside, named, and a new one is begun.
package store

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/setaside"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
)

// FileName is the name of the file in its folder.
const FileName = "history.sqlite"

const (
	// application marks the file as ours in its header (PRAGMA application_id): "tcHi".
	application = 0x74634869
	// version is that of schema.sql (PRAGMA user_version). A file of an older one is brought
	// up to it, a file of another is set aside.
	version = 4

	pageBytes = 4096
	// openEvery is how often a file that cannot be opened is tried again.
	openEvery = time.Second
	// mostTimesLarger is how much larger than MaxBytes a file may be that is read at all:
	// somebody made MaxBytes smaller. Beyond that it is no history.
	mostTimesLarger = 16
)

//go:embed schema.sql
var schema string

// upgrades bring a file of version 1, 2, … to the next. Runs that had ended then are not
// told of now.
var upgrades = []string{
	`ALTER TABLE runs ADD COLUMN noted INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE runs ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
	UPDATE runs SET told = 1 WHERE open = 0;
	CREATE INDEX runs_ended ON runs (noted) WHERE told = 0 AND open = 0;`,
	`CREATE TABLE muted (incident_id TEXT PRIMARY KEY, at INTEGER NOT NULL, until INTEGER NOT NULL, uid INTEGER NOT NULL, reason TEXT NOT NULL) STRICT, WITHOUT ROWID;`,
	`CREATE TABLE evidence (incident_id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, sum INTEGER NOT NULL, body BLOB NOT NULL) STRICT;`,
}

// Options of a store.
type Options struct {
	Directory string
	MaxBytes  int64         // of the file
	MaxAge    time.Duration // of an incident, since it was last heard of
	Now       func() time.Time
	// SetAside is told of a file that was moved away, and why.
	SetAside func(from, to string, why error)
	// Evicted is told of incidents that gave way, Damaged of rows that are left out, Cut of
	// statements that an incident has too many of.
	Evicted, Damaged, Cut func(n int)
}

// Store is the file. Its methods may be called at once; each waits for the others.
type Store struct {
	options Options

	mu       sync.Mutex
	db       *sql.DB // nil while it is not open
	conn     *sql.Conn
	tried    time.Time // when it was last tried in vain
	problem  error     // why it is not open, or took nothing
	closed   bool
	order    fairlru.List[string] // incidents, by whose room they take
	places   map[string]*fairlru.Element[string]
	lastAged time.Time
	checked  bool                    // the file that is open, since it was opened first
	ended    bool                    // there may be runs whose summaries are not told
	telling  map[runKey]bool         // whose summaries somebody tells now
	mutes    map[string]history.Mute // by incident
}

// New makes a store; the first call opens the file.
func New(o Options) *Store { return &Store{options: o, ended: true, telling: map[runKey]bool{}} }

// Path is where the file is.
func (s *Store) Path() string { return filepath.Join(s.options.Directory, FileName) }

// Problem is why the last call failed, nil when it did not.
func (s *Store) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Close closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.close()
}

func (s *Store) close() error {
	if s.db == nil {
		return nil
	}
	err := errors.Join(s.conn.Close(), s.db.Close())
	s.db, s.conn = nil, nil
	return err
}

// errUnusable is a file that is no history, or is damaged.
var errUnusable = errors.New("not a history of this version, or damaged")

// errClosed is a store after its Close.
var errClosed = errors.New("the history is closed")

// do runs work on the open file. A file that turns out to be damaged is set aside and work
// is done once more, on a new one.
func (s *Store) do(ctx context.Context, work func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	var err error
	for range 2 {
		if err = s.attempt(ctx, work); err == nil || !unusable(err) {
			break
		}
		if moved := s.setAside(err); moved != nil {
			err = moved
			break
		}
	}
	switch {
	case err == nil || ofCaller(err):
		s.problem = nil
	case ctx.Err() == nil: // that a caller went away is no problem of the file
		s.problem = err
	}
	return err
}

func (s *Store) attempt(ctx context.Context, work func(context.Context) error) (err error) {
	defer func() { // the driver is C turned into Go: what it cannot stand is a damaged file
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", errUnusable, r, debug.Stack())
		}
		if err != nil {
			s.recover(ctx, err)
		}
	}()
	if err := s.open(ctx); err != nil {
		return err
	}
	return work(ctx)
}

// recover makes the store what the file is after a call that failed.
func (s *Store) recover(ctx context.Context, err error) {
	switch {
	case ofCaller(err) || ctx.Err() != nil:
	case s.conn != nil && full(err) && s.load(ctx) == nil: // rolled back
	default:
		_ = s.close() // whatever state the connection is in, the next call begins with a new one
	}
}

// ofCaller reports whether an error says what a caller asked for, and nothing of the file.
func ofCaller(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrTooMany) || errors.Is(err, ErrSeveral)
}

// full reports whether the disk has no room.
func full(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL
}

// unusable reports whether an error says that the file is no good, and not that the disk or
// somebody else is in the way.
func unusable(err error) bool {
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_MISMATCH:
			return true
		}
		// A table or column that is not there: SQLITE_ERROR, and our SQL has no other reason.
		return e.Code() == sqlite3.SQLITE_ERROR
	}
	return errors.Is(err, errUnusable)
}

// files are those that SQLite makes of one database.
func (s *Store) files() []string {
	return []string{s.Path(), s.Path() + "-wal", s.Path() + "-shm", s.Path() + "-journal"}
}

// setAside moves all files away, so that a new one can be begun.
func (s *Store) setAside(why error) error {
	_ = s.close()
	for _, file := range s.files() {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		to, err := setaside.Move(s.options.Directory, file, s.options.Now())
		if err != nil {
			return fmt.Errorf("%s: %w, and it cannot be moved: %w", file, why, err)
		}
		if file == s.Path() {
			s.options.SetAside(file, to, why)
		}
	}
	s.tried, s.problem, s.checked = time.Time{}, nil, false
	return nil
}

// open opens the file where that was not done, all of it: a caller who goes away meanwhile
// leaves no half of it behind. It is not tried without a pause.
func (s *Store) open(ctx context.Context) error {
	if s.db != nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	now := s.options.Now()
	if s.problem != nil && now.Sub(s.tried) < openEvery && !now.Before(s.tried) {
		return s.problem
	}
	s.tried = now
	if err := os.MkdirAll(s.options.Directory, 0o700); err != nil {
		return fmt.Errorf("folder of the history: %w", err)
	}
	if err := s.inspect(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+escapedPath(s.Path())+"?_txlock=immediate")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1) // one process and one connection has the file (locking_mode)
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.db, s.conn = db, conn
	if err = s.prepare(ctx); err == nil {
		err = s.load(ctx)
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

// inspect refuses what SQLite would hang on or take for ever to read.
func (s *Store) inspect() error {
	for _, file := range s.files() {
		info, err := os.Lstat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%w: it is no file but %s", errUnusable, info.Mode().Type())
		case info.Size() > mostTimesLarger*s.options.MaxBytes:
			return fmt.Errorf("%w: it has %d bytes", errUnusable, info.Size())
		}
	}
	// SQLite makes its file readable for all, as umask allows.
	file, err := os.OpenFile(s.Path(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	// Of a file whose header asks for a newer version to write, SQLite only reads, and each
	// write fails as if somebody had forbidden it (sqlite.org/fileformat2.html, section 1.3.3).
	var writes [1]byte
	if _, err := file.ReadAt(writes[:], writeVersion); err == nil && writes[0] > newestWrite {
		return fmt.Errorf("%w: its header asks for version %d to write", errUnusable, writes[0])
	}
	return nil
}

const (
	writeVersion = 18 // where the header says so
	newestWrite  = 2  // with a write-ahead log
)

// settings of a connection. With the exclusive lock SQLite keeps the index of the
// write-ahead log in memory: no file is mapped, whose damage would be a signal, and a
// second process is told that the file is locked (sqlite.org/wal.html, section 6). With
// synchronous=NORMAL a commit outlives the process; a power failure can lose the newest.
const settings = `
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 256;
PRAGMA journal_size_limit = 4194304;
PRAGMA cache_size = -1024;
PRAGMA temp_store = MEMORY;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA mmap_size = 0;
`

// prepare sets the connection up, makes an empty file ours and checks one that is not.
func (s *Store) prepare(ctx context.Context) error {
	if _, err := s.conn.ExecContext(ctx, settings); err != nil {
		return err
	}
	var app, stored, tables int64
	for _, q := range []struct {
		query string
		value *int64
	}{
		{"PRAGMA application_id", &app}, {"PRAGMA user_version", &stored}, {"SELECT count(*) FROM sqlite_schema", &tables},
	} {
		if err := s.conn.QueryRowContext(ctx, q.query).Scan(q.value); err != nil {
			return err
		}
	}
	switch {
	case app == 0 && stored == 0 && tables == 0:
		return s.begin(ctx)
	case app != application || stored < 1 || stored > version:
		return fmt.Errorf("%w: application %#x, version %d", errUnusable, app, stored)
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.upgrade(ctx, stored)
}

// upgrade brings the tables of an older version up to this one: all of it or nothing.
func (s *Store) upgrade(ctx context.Context, stored int64) error {
	if stored == version {
		return nil
	}
	return s.tx(ctx, func(tx *sql.Tx) error {
		for _, statements := range upgrades[stored-1:] {
			if _, err := tx.ExecContext(ctx, statements); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}

// begin makes the tables: all of them or none.
func (s *Store) begin(ctx context.Context) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", application, version))
		return err
	})
}

// check reads all pages, once. What the file holds in its rows has checksums of its own.
func (s *Store) check(ctx context.Context) error {
	if s.checked {
		return nil
	}
	var said string
	if err := s.conn.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&said); err != nil {
		return err
	}
	if said != "ok" {
		return fmt.Errorf("%w: %s", errUnusable, said)
	}
	s.checked = true
	return nil
}

// tx runs work in one transaction. Where work panics it is rolled back too: a connection with
// a transaction cannot be closed, and Close would wait for ever.
func (s *Store) tx(ctx context.Context, work func(*sql.Tx) error) (err error) {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			err = errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}()
	if err := work(tx); err != nil {
		return err
	}
	committed = true
	return tx.Commit()
}

// ignoreDone: SQLite itself has rolled back where the disk is full.
func ignoreDone(err error) error {
	var e *sqlite.Error
	if errors.Is(err, sql.ErrTxDone) || errors.As(err, &e) {
		return nil
	}
	return err
}

// load learns whose room the incidents take, and which are muted.
func (s *Store) load(ctx context.Context) error {
	if err := s.loadMutes(ctx); err != nil {
		return err
	}
	s.order, s.places = timeline.NewOrder[string](), map[string]*fairlru.Element[string]{}
	rows, err := s.conn.QueryContext(ctx, "SELECT incident_id, worth, owner, bytes FROM incidents ORDER BY updated, incident_id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, owner string
		var worth uint8
		var bytes int64
		if err := rows.Scan(&id, &worth, &owner, &bytes); err != nil {
			return fmt.Errorf("%w: %w", errUnusable, err)
		}
		path, err := readOwner(owner)
		if err != nil {
			return err
		}
		s.place(id, path, fairlru.Worth(min(worth, uint8(fairlru.Much))), bytes)
	}
	return rows.Err()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	cannotConnectNow = "57P03" // PostgreSQL's error code while it starts
	nobody           = 65534   // the user and group of that name
)

// postgresStore is PostgreSQL with a table of ids and documents, behind pgx.
type postgresStore struct {
	server
	rig *rig
	dir string
	url string
}

func (s *postgresStore) load(ctx context.Context, c *corpus) (figures, error) {
	initdb, err := postgresCommand("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := postgresCommand("postgres")
	if err != nil {
		return nil, err
	}
	// Not below the rig's directory, which is readable by this user only.
	dir, err := os.MkdirTemp("", "docbench-postgresql-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	var as *syscall.SysProcAttr
	if os.Getuid() == 0 { // PostgreSQL refuses root
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return nil, err
		}
	}
	create := exec.CommandContext(ctx, initdb, "-D", dir, "-U", "bench", "-A", "trust", "--no-sync")
	create.SysProcAttr = as
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if err := s.start(ctx, s.rig, "postgresql", func(host, port string) *exec.Cmd {
		cmd := exec.Command(postgres, "-D", dir, "-h", host, "-p", port, "-k", dir,
			"-c", "shared_buffers=2GB", "-c", "max_connections=300", "-c", "fsync=off")
		cmd.SysProcAttr = as
		return cmd
	}); err != nil {
		return nil, err
	}
	s.url = "postgres://bench@" + s.address + "/postgres"
	return nil, s.fill(ctx, c)
}

// postgresCommand finds a command of PostgreSQL, which Debian installs outside of PATH.
func postgresCommand(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", missingError{name, "postgresql"}
	}
	return found[len(found)-1], nil
}

func (s *postgresStore) fill(ctx context.Context, c *corpus) error {
	conn, err := pgx.Connect(ctx, s.url)
	for starting := (*pgconn.PgError)(nil); errors.As(err, &starting) && starting.Code == cannotConnectNow; {
		time.Sleep(20 * time.Millisecond) // it listens before it answers
		conn, err = pgx.Connect(ctx, s.url)
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // the copy has been acknowledged
	if _, err := conn.Exec(ctx, `CREATE TABLE documents (id text PRIMARY KEY, document bytea NOT NULL)`); err != nil {
		return err
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"documents"}, []string{"id", "document"}, pgx.CopyFromSlice(c.size(), func(i int) ([]any, error) {
		return []any{c.id(i), c.line(nil, i)}, nil
	}))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM ANALYZE documents")
	return err
}

func (s *postgresStore) stop() error {
	return errors.Join(s.server.stop(), os.RemoveAll(s.dir))
}

type postgresClient struct{ *pgxpool.Pool }

func (s *postgresStore) client(callers int) (client, error) {
	config, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(callers)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	return postgresClient{pool}, err
}

func (c postgresClient) get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	var document []byte
	err := c.QueryRow(ctx, "SELECT document FROM documents WHERE id = $1", id).Scan(&document)
	return append(dst, document...), err
}

func (c postgresClient) getMany(ctx context.Context, ids []string, fn func(i int, document []byte) error) error {
	rows, err := c.Query(ctx, "SELECT id, document FROM documents WHERE id = ANY($1)", ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	byID := make(map[string][]byte, len(ids))
	for rows.Next() {
		var id string
		var document []byte
		if err := rows.Scan(&id, &document); err != nil {
			return err
		}
		byID[id] = document
	}
	for i, id := range ids { // an id may have been asked for twice
		document, ok := byID[id]
		if !ok {
			return fmt.Errorf("postgresql has no %s", id)
		}
		if err := fn(i, document); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (c postgresClient) close() error {
	c.Close()
	return nil
}

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// copyPrimary makes the data directory of a standby, with all that it needs to follow. Passwords come along.
func (s *Server) copyPrimary(ctx context.Context, primary *Server) error {
	program := s.bin.path("pg_basebackup")
	if !exists(program) {
		return fmt.Errorf("copy a running cluster: there is no %s; install all of PostgreSQL's server and client programs", program)
	}
	staging := filepath.Join(s.dir, "postgres.new")
	if err := removeAll(staging); err != nil {
		return err
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return err
	}
	if err := s.account.give(staging); err != nil {
		return err
	}
	// These words are written into the copy, which connects by them: so the password is among them.
	from := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s", primary.port, userName, primary.password)
	args := []string{"--pgdata", staging, "--dbname", from, "--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast"}
	if s.temp {
		args = append(args, "--no-sync")
	}
	if err := runProgram(s.account.command(exec.CommandContext(ctx, program, args...), s.dir)); err != nil {
		return errors.Join(fmt.Errorf("copy the cluster at port %d: %w", primary.port, err), removeAll(staging))
	}
	return putInPlace(staging, dataDir(s.dir))
}

// Promote makes a standby a primary, and returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var done bool
	if err := conn.QueryRow(ctx, `SELECT pg_promote(true, 60)`).Scan(&done); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	if !done {
		return fmt.Errorf("promote the standby in %s: it is none yet after a minute", s.dir)
	}
	return nil
}

package pgserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func passwordFile(data string) string { return filepath.Join(data, "keytill.password") }

func readPassword(data string) (string, error) {
	text, err := os.ReadFile(passwordFile(data))
	if err != nil {
		return "", fmt.Errorf("password of the cluster: %w; if it is lost, choose another --data-dir, or run this cluster "+
			"with PostgreSQL's own tools and set KEYTILL_DATABASE_URL", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// initCluster makes the data directory of a cluster, with a random password for its superuser. It grows beside its
// place and is moved there when whole, so a cluster that can be seen is a complete one.
//
// The locale is C: it exists everywhere, sorts the same on every machine, and an upgrade of the system's C library
// cannot silently break an index. A disposable cluster is small, quick to make and quick to copy, and does without what
// protects against a crash of the machine and flaws of the disk.
func initCluster(ctx context.Context, bin binaries, a account, dir string, disposable bool) error {
	data, staging, pwfile := dataDir(dir), filepath.Join(dir, "postgres.new"), filepath.Join(dir, "postgres.pw")
	if err := removeAll(staging); err != nil {
		return err
	}
	defer removeAll(staging)
	defer os.Remove(pwfile)
	if err := os.Mkdir(staging, 0o700); err != nil {
		return err
	}
	if err := a.give(staging); err != nil {
		return err
	}
	if err := writePassword(pwfile, a); err != nil {
		return err
	}

	args := []string{"--pgdata", staging, "--username", userName, "--pwfile", pwfile, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-instructions"}
	if disposable {
		args = append(args, "--no-sync", "--wal-segsize", "1")
	} else {
		args = append(args, "--data-checksums")
	}
	if err := runProgram(a.command(exec.CommandContext(ctx, bin.path("initdb"), args...), dir)); err != nil {
		return fmt.Errorf("make a PostgreSQL cluster in %s: %w", dir, err)
	}

	if err := createDatabase(ctx, bin, a, dir, staging, disposable); err != nil {
		return fmt.Errorf("make the database of the cluster in %s: %w", dir, err)
	}
	if err := os.Rename(pwfile, passwordFile(staging)); err != nil {
		return err
	}
	if !disposable {
		// initdb has seen to its own files.
		if err := syncAll(passwordFile(staging), staging); err != nil {
			return err
		}
	}
	if err := putInPlace(staging, data); err != nil || disposable {
		return err
	}
	return syncAll(dir, filepath.Dir(dir))
}

// syncAll makes files and the names in directories last through a failure of the power.
func syncAll(paths ...string) error {
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("write to the disk: %w", err)
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			return fmt.Errorf("write %s to the disk: %w", path, err)
		}
	}
	return nil
}

// createDatabase uses PostgreSQL's single-user mode, which needs no port. Each database is 300 files, so a disposable
// cluster has its "postgres" renamed; a cluster that stays keeps that one for the tools that expect it.
func createDatabase(ctx context.Context, bin binaries, a account, dir, data string, disposable bool) error {
	args := []string{"--single", "-D", data, "template1"}
	statement := "CREATE DATABASE " + databaseName
	if disposable {
		args = []string{"--single", "-F", "-D", data, "template1"} // -F: no fsync
		statement = "ALTER DATABASE postgres RENAME TO " + databaseName
	}
	cmd := a.command(exec.CommandContext(ctx, bin.path("postgres"), args...), dir)
	cmd.Stdin = strings.NewReader(statement + "\n")
	return runProgram(cmd)
}

// putInPlace moves a whole data directory to its name; an empty directory that was there before gives way.
func putInPlace(staging, data string) error {
	if err := os.Remove(data); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Rename(staging, data)
}

func writePassword(path string, a account) error {
	if err := os.WriteFile(path, []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	return a.give(path)
}

// runProgram runs to the end, and puts what the program said into the error.
func runProgram(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

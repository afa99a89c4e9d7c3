package pgserver

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutPostgresTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv(binEnv, "/nowhere")
	_, err := Start(t.Context(), Config{Fast: true})
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatalf("got %v, want ErrNoPostgres", err)
	}
	wantInMessage(t, err, "KEYTILL_PG_BIN=/nowhere", "apt-get install postgresql", "brew install postgresql@15", "KEYTILL_DATABASE_URL")
}

func TestProgramsOlderThan15AreRefused(t *testing.T) {
	t.Setenv(binEnv, stubPrograms(t, "postgres (PostgreSQL) 14.18"))
	_, err := Start(t.Context(), Config{Fast: true})
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatalf("got %v, want ErrNoPostgres", err)
	}
	wantInMessage(t, err, "14.18", "15 or newer is needed")
}

func TestClusterOfAnotherMajorVersionNeedsItsOwnPrograms(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	if err := os.Mkdir(dataDir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dataDir(dir), "PG_VERSION"), []byte("14\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: dir})
	wantInMessage(t, err, "the data directory needs 14", "cannot be fetched")
}

func TestMajorVersionIsRead(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": 15,
		"postgres (PostgreSQL) 18beta1":                        18,
		"postgres (PostgreSQL) 9.6.24":                         9,
	} {
		if got, err := majorOf(version); got != want || err != nil {
			t.Errorf("majorOf(%q) = %d, %v, want %d", version, got, err, want)
		}
	}
	if got, err := majorOf("something else"); err == nil {
		t.Errorf("a version %d was read from something else", got)
	}
}

func TestFetchedProgramsAreUnpackedOnceAndFoundAgain(t *testing.T) {
	t.Parallel()
	requests := 0
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		jar := stubJar(t)
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			sum := sha256.Sum256(jar)
			_, _ = w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		_, _ = w.Write(jar)
	}))
	defer repository.Close()
	f := fetcher{cache: programDir(t), repository: repository.URL, log: slog.New(slog.DiscardHandler)}
	for range 2 {
		b, err := f.fetch(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if b.major != 17 || !strings.HasPrefix(b.dir, f.cache) {
			t.Errorf("fetched %d in %s", b.major, b.dir)
		}
	}
	if requests != 2 {
		t.Errorf("%d requests, want the archive and its checksum", requests)
	}
	if rest, _ := filepath.Glob(filepath.Join(f.cache, "fetch-*")); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}
}

func TestFailedFetchLeavesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	repository := httptest.NewServer(http.NotFoundHandler())
	defer repository.Close()
	f := fetcher{cache: programDir(t), repository: repository.URL, log: slog.New(slog.DiscardHandler)}
	_, err := f.fetch(t.Context(), 16)
	wantInMessage(t, err, "no version found matching 16")
	if rest, _ := filepath.Glob(filepath.Join(f.cache, "*postgres*")); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	repository := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-release
	}))
	defer repository.Close()
	defer close(release)
	f := fetcher{cache: programDir(t), repository: repository.URL, log: slog.New(slog.DiscardHandler)}
	if _, err := f.fetch(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// stubJar is an archive as the repository has them. In it, testdata/postgres-stub.txz: bin/postgres, a shell script that
// prints "postgres (PostgreSQL) 17.5", and bin/initdb and bin/pg_ctl, which fail.
func stubJar(t *testing.T) []byte {
	txz, err := os.ReadFile("testdata/postgres-stub.txz")
	if err != nil {
		t.Error(err)
	}
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	file, err := archive.Create("postgres-stub.txz")
	if err != nil {
		t.Error(err)
	}
	_, _ = file.Write(txz)
	if err := archive.Close(); err != nil {
		t.Error(err)
	}
	return jar.Bytes()
}

// stubPrograms is a directory with a postgres that says this of itself.
func stubPrograms(t *testing.T, version string) string {
	t.Helper()
	dir := programDir(t)
	for name, script := range map[string]string{"postgres": "echo '" + version + "'", "initdb": "exit 1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

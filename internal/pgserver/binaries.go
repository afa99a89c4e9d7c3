package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// minMajor is the oldest PostgreSQL that keytill's schema runs on.
const minMajor = 15

// binEnv names the directory of PostgreSQL's programs and forbids to look anywhere else.
const binEnv = "KEYTILL_PG_BIN"

const howToGetPostgres = "install PostgreSQL 15 or newer (apt-get install postgresql, or brew install postgresql@15), " +
	"or set KEYTILL_DATABASE_URL to a server of yours"

// binaries are PostgreSQL's programs of one installation.
type binaries struct {
	dir     string
	major   int
	version string // what `postgres --version` prints
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// findBinaries finds programs of PostgreSQL 15 or newer, or of exactly one major version if that is not 0: in
// KEYTILL_PG_BIN and nowhere else if it is set; on PATH; where Debian, Red Hat, Alpine, Homebrew and Postgres.app put
// them, newest first; in the cache; and at last from the network into the cache.
func findBinaries(ctx context.Context, major int, log *slog.Logger) (binaries, error) {
	if dir := os.Getenv(binEnv); dir != "" {
		b, err := inspect(ctx, dir)
		if err != nil {
			return binaries{}, fmt.Errorf("%w in %s=%s: %w; correct or unset it, %s", ErrNoPostgres, binEnv, dir, err, howToGetPostgres)
		}
		if !b.fits(major) {
			return binaries{}, fmt.Errorf("%w in %s=%s: it is %s and %s; correct or unset it, %s",
				ErrNoPostgres, binEnv, dir, b.version, wanted(major), howToGetPostgres)
		}
		return b, nil
	}
	for _, dir := range usualDirs() {
		b, err := inspect(ctx, dir)
		if err == nil && b.fits(major) {
			return b, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.DebugContext(ctx, "not usable as PostgreSQL", "dir", dir, "error", err)
		}
	}
	f, err := newFetcher(log)
	if err != nil {
		return binaries{}, fmt.Errorf("%w on this machine, and nowhere to fetch it to: %w; %s", ErrNoPostgres, err, howToGetPostgres)
	}
	b, err := f.fetch(ctx, major)
	if err != nil {
		return binaries{}, fmt.Errorf("%w on this machine (%s), and it could not be fetched: %w; %s",
			ErrNoPostgres, wanted(major), err, howToGetPostgres)
	}
	return b, nil
}

func (b binaries) fits(major int) bool {
	return b.major >= minMajor && (major == 0 || b.major == major)
}

func wanted(major int) string {
	if major == 0 {
		return "15 or newer is needed"
	}
	return fmt.Sprintf("the data directory needs %d", major)
}

// inspect asks the programs in a directory which version they are.
func inspect(ctx context.Context, dir string) (binaries, error) {
	// A link on PATH leads to one program; the others are beside what it points to.
	postgres, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: filepath.Dir(postgres)}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, postgres, "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("%s --version: %w", postgres, err)
	}
	b.version = strings.TrimSpace(string(out))
	b.major, err = majorOf(b.version)
	return b, err
}

// majorOf reads "postgres (PostgreSQL) 15.18 (Debian …)", and "17beta1" in the number's place.
func majorOf(version string) (int, error) {
	_, rest, _ := strings.Cut(version, "(PostgreSQL) ")
	digits := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = rest[:end]
	}
	major, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("not a PostgreSQL version: %q", version)
	}
	return major, nil
}

func usualDirs() []string {
	var dirs []string
	if postgres, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(postgres))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return numberIn(b) - numberIn(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// numberIn is the version in a path, for the order alone: "…/postgresql/15/bin" is 15.
func numberIn(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[0])
	return n
}

// dataMajor is the major version that made a data directory, 0 if there is none yet.
func dataMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nothingThere(data)
	}
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("%w: %s is another user's; run keytill as the user that made it or as root, or choose another --data-dir",
			ErrNoAccess, data)
	}
	if err != nil {
		return 0, fmt.Errorf("data directory: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("data directory %s: PG_VERSION says %q", data, text)
	}
	return major, nil
}

// nothingThere makes sure that a directory without a cluster has nothing else in it that a new one would bury.
func nothingThere(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("data directory %s is neither empty nor a PostgreSQL cluster; choose another --data-dir", data)
	}
	return nil
}

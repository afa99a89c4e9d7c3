package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fetched maps the major versions that can be fetched to the exact ones. A new cluster gets defaultFetch.
var fetched = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const defaultFetch = 17

// fetcher brings PostgreSQL's programs from a Maven repository to a cache directory.
type fetcher struct {
	cache      string
	repository string
	log        *slog.Logger
}

func newFetcher(log *slog.Logger) (fetcher, error) {
	cache, err := cacheDir()
	return fetcher{cache: cache, repository: "https://repo1.maven.org/maven2", log: log}, err
}

// cacheDir is the user's. Root's own is closed to the account that PostgreSQL runs as, so root uses the system's.
func cacheDir() (string, error) {
	if isRoot() {
		if runtime.GOOS == "darwin" {
			return "/Library/Caches/keytill", nil
		}
		return "/var/cache/keytill", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "keytill"), nil
}

// fetch returns the programs of one major version, 0 for the default, from the cache if they are there.
func (f fetcher) fetch(ctx context.Context, major int) (binaries, error) {
	if major == 0 {
		major = defaultFetch
	}
	version, ok := fetched[major]
	if !ok {
		return binaries{}, fmt.Errorf("PostgreSQL %d cannot be fetched", major)
	}
	home := filepath.Join(f.cache, "postgresql-"+string(version))
	if b, err := inspect(ctx, filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(f.cache, 0o755); err != nil {
		return binaries{}, err
	}
	// Two that start at once fetch once.
	l, err := waitLock(filepath.Join(f.cache, "fetch.lock"))
	if err != nil {
		return binaries{}, err
	}
	defer l.release()
	if b, err := inspect(ctx, filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	f.log.InfoContext(ctx, "no PostgreSQL on this machine, fetching it once", "version", string(version), "from", f.repository, "to", home)
	if err := f.download(ctx, version, home); err != nil {
		return binaries{}, err
	}
	return inspect(ctx, filepath.Join(home, "bin"))
}

// download fetches beside home, and puts what came into place in one step. embedded-postgres takes no context: a
// download that is given up ends by itself later, and cleans up.
func (f fetcher) download(ctx context.Context, version embeddedpostgres.PostgresVersion, home string) error {
	work, err := os.MkdirTemp(f.cache, "fetch-")
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := f.unpack(version, work, filepath.Join(work, "postgresql"))
		if err == nil {
			err = replaceDir(home, filepath.Join(work, "postgresql"))
		}
		done <- errors.Join(err, os.RemoveAll(work))
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("fetching: %w", ctx.Err())
	}
}

func replaceDir(dir, with string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(with, dir)
}

// unpack uses embedded-postgres as a fetcher only. It has no call for that, so it is told to start a cluster with a
// locale that initdb refuses, as it refuses root: it fetches, checks and unpacks first. Whether that went well is seen
// by what is there, and the error counts only if it did not.
func (f fetcher) unpack(version embeddedpostgres.PostgresVersion, work, unpacked string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	config := embeddedpostgres.DefaultConfig().
		Version(version).
		BinaryRepositoryURL(f.repository).
		CachePath(filepath.Join(work, "download")).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(work, "run")).
		DataPath(filepath.Join(work, "data")).
		Port(uint32(port)).
		Locale("keytill-fetches-only").
		Logger(io.Discard)
	database := embeddedpostgres.NewDatabase(config)
	err = database.Start()
	if err == nil {
		return errors.Join(errors.New("PostgreSQL accepted a locale that does not exist"), database.Stop())
	}
	for _, program := range []string{"postgres", "initdb"} {
		if _, statErr := os.Stat(filepath.Join(unpacked, "bin", program)); errors.Is(statErr, fs.ErrNotExist) {
			return err
		}
	}
	// Unpacked below a directory that MkdirTemp closed, but to be used by others too.
	return os.Chmod(unpacked, 0o755)
}

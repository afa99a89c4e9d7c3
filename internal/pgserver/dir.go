package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
)

func dataDir(dir string) string { return filepath.Join(dir, "postgres") }
func logFile(dir string) string { return filepath.Join(dir, "postgres.log") }

// openDir makes and locks a directory that is meant to stay.
func openDir(dir string) (string, *lock, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := makeDir(abs); err != nil {
		return "", nil, err
	}
	// PostgreSQL's command line is how a leftover postmaster is recognised, so it gets one spelling of the path.
	abs, err = filepath.EvalSymlinks(abs)
	if err != nil {
		return "", nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	owner, err := lockOwner(abs)
	return abs, owner, err
}

// makeDir makes a directory for a cluster. Where root starts it, another account has to pass through it to the data,
// whatever the umask; the data directory itself stays closed to everyone else.
func makeDir(dir string) error {
	_, err := os.Stat(dir)
	if err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, dirMode()); err != nil {
		return fmt.Errorf("make data directory: %w; choose another --data-dir", err)
	}
	if err := os.Chmod(dir, dirMode()); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	return nil
}

func dirMode() os.FileMode {
	if isRoot() {
		return 0o711
	}
	return 0o700
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

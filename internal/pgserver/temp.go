package pgserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clusterPrefix begins the names of temporary clusters, and of nothing else below their common directory.
const clusterPrefix = "cluster-"

// newTempDir makes and locks a directory for a temporary cluster, after removing those that lost their owner.
func newTempDir(ctx context.Context, parent, label string, log *slog.Logger) (string, *lock, error) {
	root, err := tempRoot(parent)
	if err != nil {
		return "", nil, err
	}
	// Without this lock, a sweep could see a new directory before its owner locked it.
	l, err := waitLock(filepath.Join(root, "sweep.lock"))
	if err != nil {
		return "", nil, err
	}
	defer l.release()
	sweep(ctx, root, label, log)

	dir, err := os.MkdirTemp(root, clusterPrefix)
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, dirMode()); err != nil {
		return "", nil, err
	}
	owner, err := lockOwner(dir)
	return dir, owner, err
}

// tempRoot makes the directory of this user's temporary clusters. Its name is easy to guess and its parent is open to
// all, so one that somebody else made is refused.
func tempRoot(parent string) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return "", fmt.Errorf("temporary directory: %w", err)
	}
	root := filepath.Join(parent, "keytill-pg-"+strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(root, dirMode()); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("directory for temporary clusters: %w", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("directory for temporary clusters: %w", err)
	}
	if uid, _ := ownerOf(info); !info.IsDir() || int(uid) != os.Geteuid() {
		return "", fmt.Errorf("directory for temporary clusters: %s is not ours; remove it, or set TMPDIR to another directory", root)
	}
	if err := os.Chmod(root, dirMode()); err != nil {
		return "", fmt.Errorf("directory for temporary clusters: %w", err)
	}
	return root, nil
}

// sweep removes temporary clusters whose owner is gone, however it went. What cannot be removed is left to the next
// sweep: it must not keep anyone from starting.
func sweep(ctx context.Context, root, label string, log *slog.Logger) {
	entries, err := os.ReadDir(root)
	if err != nil {
		log.WarnContext(ctx, "cannot look for leftover clusters", "dir", root, "error", err)
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), clusterPrefix) {
			continue
		}
		dir := filepath.Join(root, entry.Name())
		if err := sweepOne(ctx, dir, label, log); err != nil {
			log.WarnContext(ctx, "cannot remove a leftover cluster", "dir", dir, "error", err)
		}
	}
}

func sweepOne(ctx context.Context, dir, label string, log *slog.Logger) error {
	l, err := tryLock(ownerFile(dir), 0)
	switch {
	case errors.Is(err, errLocked):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		// Its owner is just removing it, or was ended while it did.
	case err != nil:
		return err
	default:
		defer l.release()
	}
	if isKept(dir, label) {
		return nil
	}
	if err := stopLeftover(ctx, dataDir(dir), true, log); err != nil {
		return err
	}
	return removeAll(dir)
}

// removeAll tries twice: somebody else may be removing the same tree, or a process that is ending may write a last
// file into it.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		err = os.RemoveAll(path)
	}
	return err
}

// keepNote is the content of a kept cluster's file "keep".
type keepNote struct {
	Until time.Time `json:"until"`
	Label string    `json:"label"`
}

func keepFile(dir string) string { return filepath.Join(dir, "keep") }

// KeepRunning makes a temporary cluster outlive this process, so that someone can look into it: Stop then leaves it
// running. It goes with the first start of a temporary cluster after that time, or of one with the same label.
func (s *Server) KeepRunning(until time.Time) error {
	if !s.temp {
		return fmt.Errorf("keep the cluster in %s running: it is not a temporary one", s.dir)
	}
	note, err := json.Marshal(keepNote{Until: until, Label: s.cfg.Label})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.WriteFile(keepFile(s.dir), note, 0o600); err != nil {
		return err
	}
	s.kept = true
	if s.post != nil {
		s.post.disarm()
	}
	return nil
}

func isKept(dir, label string) bool {
	text, err := os.ReadFile(keepFile(dir))
	if err != nil {
		return false
	}
	var note keepNote
	if err := json.Unmarshal(text, &note); err != nil {
		return false
	}
	return note.Label != label && time.Now().Before(note.Until)
}

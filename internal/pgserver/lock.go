package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lock is an advisory lock on a file (flock). The kernel drops it with the last copy of its descriptor, so it ends
// with the process, SIGKILL included; children do not inherit it, since Go opens files close-on-exec.
type lock struct{ file *os.File }

var errLocked = errors.New("locked")

// tryLock takes the lock at once or returns errLocked. flags go to open: with os.O_CREATE a missing file is made.
func tryLock(path string, flags int) (*lock, error) {
	return takeLock(path, flags, syscall.LOCK_EX|syscall.LOCK_NB)
}

// waitLock waits for the lock. It is for short work only: nothing interrupts the wait.
func waitLock(path string) (*lock, error) {
	return takeLock(path, os.O_CREATE, syscall.LOCK_EX)
}

func takeLock(path string, flags, how int) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		switch {
		case err == nil:
			return &lock{file}, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			file.Close()
			return nil, errLocked
		default:
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// release unlocks before it closes: a child that is just being forked has a copy of the descriptor until it execs.
func (l *lock) release() error {
	err := syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	return errors.Join(err, l.file.Close())
}

func ownerFile(dir string) string { return filepath.Join(dir, "owner.lock") }

// lockOwner makes this process the owner of a cluster's directory.
func lockOwner(dir string) (*lock, error) {
	path := ownerFile(dir)
	l, err := tryLock(path, os.O_CREATE)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%w: %s belongs to %s; stop that one or choose another --data-dir", ErrInUse, dir, ownerName(path))
	}
	if err != nil {
		return nil, fmt.Errorf("own data directory %s: %w; choose another --data-dir", dir, err)
	}
	err = l.file.Truncate(0)
	if err == nil {
		_, err = l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("own data directory %s: %w", dir, err), l.release())
	}
	return l, nil
}

// ownerName says who holds a lock, for a message. The file may be empty: its owner has just taken it.
func ownerName(path string) string {
	text, _ := os.ReadFile(path)
	if pid := strings.TrimSpace(string(text)); pid != "" {
		return "process " + pid
	}
	return "another process"
}

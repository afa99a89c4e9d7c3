package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the user PostgreSQL runs as. Its programs refuse root, so for root it is another one.
type account struct {
	name     string
	uid, gid uint32
	change   bool // false: the user of this process
}

func isRoot() bool { return os.Geteuid() == 0 }

// accountFor picks the account for a data directory: this process's, or for root the one that owns the data already,
// else postgres, else nobody.
func accountFor(data string) (account, error) {
	if !isRoot() {
		return account{}, ownedByUs(data)
	}
	if info, err := os.Stat(data); err == nil {
		if uid, gid := ownerOf(info); uid != 0 {
			return account{name: "user " + strconv.Itoa(int(uid)), uid: uid, gid: gid, change: true}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseInt(u.Uid, 10, 64)
		gid, errGID := strconv.ParseInt(u.Gid, 10, 64)
		if errUID != nil || errGID != nil || uid == 0 {
			continue
		}
		return account{name: "user " + name, uid: uint32(uid), gid: uint32(gid), change: true}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody: " +
		"run keytill as another user, or set KEYTILL_DATABASE_URL")
}

// ownedByUs refuses data that another user's keytill made, before PostgreSQL does so in its own words.
func ownedByUs(data string) error {
	info, err := os.Stat(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if uid, _ := ownerOf(info); int(uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d; run keytill as that user or as root, or choose another --data-dir",
			ErrNoAccess, data, uid)
	}
	return nil
}

// own gives a data directory that root copied or restored to the account that has to work in it.
func (a account) own(data string) error {
	if !a.change {
		return nil
	}
	info, err := os.Stat(data)
	if err != nil {
		return err
	}
	if uid, _ := ownerOf(info); uid == a.uid {
		return nil
	}
	return filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(a.uid), int(a.gid))
	})
}

// give hands one file or directory to the account.
func (a account) give(path string) error {
	if !a.change {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// command runs a PostgreSQL program as the account, in a process group of its own, so that Ctrl-C at the terminal
// reaches keytill alone, which then stops PostgreSQL in order. Its environment is ours without what would steer
// PostgreSQL from outside; dir must be one that the account can enter, which our own may not be.
func (a account) command(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Dir = dir
	cmd.Env = cleanEnv(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.change {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return cmd
}

func cleanEnv(env []string) []string {
	clean := make([]string, 0, len(env)+1)
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "LANG") ||
			strings.HasPrefix(name, "KEYTILL_") {
			continue
		}
		clean = append(clean, entry)
	}
	return append(clean, "LC_ALL=C")
}

// canReach checks that the account can enter every directory on the way to path, and path. It goes by the mode bits;
// an access list that allows more is not seen. advice is what else to do than to open the directory.
func (a account) canReach(path, advice string) error {
	if !a.change {
		return nil
	}
	closed, err := a.closedOn(path)
	if err != nil {
		return err
	}
	if closed == "" {
		return nil
	}
	return fmt.Errorf("%w: %s is closed to %s, which PostgreSQL runs as since it refuses to run as root, and needs on the way "+
		"to %s; %s, or run keytill as another user, or chmod o+x %s", ErrNoAccess, closed, a.name, path, advice, closed)
}

// closedOn returns the outermost directory on the way to path that the account cannot enter.
func (a account) closedOn(path string) (closed string, err error) {
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return "", err
		}
		if !a.canEnter(info) {
			closed = dir
		}
		if dir == filepath.Dir(dir) {
			return closed, nil
		}
	}
}

func (a account) canEnter(info fs.FileInfo) bool {
	uid, gid := ownerOf(info)
	need := fs.FileMode(0o001)
	switch {
	case uid == a.uid:
		need = 0o100
	case gid == a.gid:
		need = 0o010
	}
	return info.Mode().Perm()&need != 0
}

func ownerOf(info fs.FileInfo) (uid, gid uint32) {
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Uid, stat.Gid
}

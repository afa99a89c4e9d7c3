package pgserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// templateFormat counts the ways initCluster made clusters; a change there that matters to a copy raises it.
	templateFormat = 2
	// templateLife is short, since systems clear old files, one by one, out of their temporary directory.
	templateLife = 12 * time.Hour
)

// copyTemplate fills dir with a copy of a cluster that initdb made once for all temporary clusters of this user,
// PostgreSQL version and account; that costs a tenth of initdb. All copies have the same password.
func copyTemplate(ctx context.Context, bin binaries, a account, dir string) error {
	root := filepath.Dir(dir)
	sum := sha256.Sum256(fmt.Append(nil, templateFormat, bin.dir, bin.version, a.uid))
	template := filepath.Join(root, fmt.Sprintf("template-%d-", bin.major)+hex.EncodeToString(sum[:6]))

	l, err := waitLock(template + ".lock")
	if err != nil {
		return err
	}
	defer l.release()
	if !isFresh(template) {
		if err := makeTemplate(ctx, bin, a, template); err != nil {
			return err
		}
	}
	staging := filepath.Join(dir, "postgres.copy")
	if err := copyTree(dataDir(template), staging, a); err != nil {
		return errors.Join(fmt.Errorf("copy the template cluster: %w", err), removeAll(staging))
	}
	return putInPlace(staging, dataDir(dir))
}

// isFresh goes by the data directory's password file: written last, and never touched again.
func isFresh(template string) bool {
	info, err := os.Stat(passwordFile(dataDir(template)))
	return err == nil && time.Since(info.ModTime()) < templateLife
}

func makeTemplate(ctx context.Context, bin binaries, a account, template string) error {
	if err := removeAll(template); err != nil {
		return err
	}
	if err := makeDir(template); err != nil {
		return err
	}
	return initCluster(ctx, bin, a, template, true)
}

// copyTree copies directories and plain files, all that a cluster at rest consists of, and gives them to the account.
func copyTree(from, to string, a account) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target)
		default:
			err = fmt.Errorf("%s is neither file nor directory", path)
		}
		if err != nil {
			return err
		}
		return a.give(target)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keytill/keytill/inventory"
)

const keysetFileName = "keyset.json"

// loadKeyset reads the keyset that the settings name. Beside an embedded database it is made on the first start.
func (c *command) loadKeyset(_ context.Context) (*inventory.Keyset, error) {
	s := c.settings
	switch {
	case s.keyset != "" && s.keysetFile != "":
		return nil, usage("both a keyset and a keyset file are given: unset KEYTILL_KEYSET or KEYTILL_KEYSET_FILE")
	case s.keyset != "":
		keyset, err := inventory.ParseKeyset([]byte(s.keyset))
		if err != nil {
			return nil, fmt.Errorf("KEYTILL_KEYSET: %w", badKeyset(err))
		}
		return keyset, nil
	case s.keysetFile != "":
		return readKeyset(c.path(s.keysetFile))
	case s.databaseURL != "":
		return nil, errors.New("no keyset: make one with `keytill keyset new > keyset.json`, keep a copy apart from the database's backup, and set KEYTILL_KEYSET_FILE=keyset.json")
	}
	name := filepath.Join(c.path(s.dataDir), keysetFileName)
	keyset, err := readKeyset(name)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKeyset(name)
	}
	return keyset, err
}

func badKeyset(err error) error {
	return fmt.Errorf("%w; restore it from its backup, or make one for a new database with `keytill keyset new`", err)
}

func readKeyset(name string) (*inventory.Keyset, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the keyset: %w; check KEYTILL_KEYSET_FILE", err)
	}
	keyset, err := inventory.ParseKeyset(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, badKeyset(err))
	}
	return keyset, nil
}

// makeKeyset writes a new keyset, for its owner's eyes only. Of two first starts, one makes it and both use it.
func makeKeyset(name string) (*inventory.Keyset, error) {
	keyset, err := inventory.NewKeyset()
	if err != nil {
		return nil, err
	}
	temporary, err := writeBeside(name, keyset)
	if err != nil {
		return nil, err
	}
	defer os.Remove(temporary)
	if err := os.Link(temporary, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("write the keyset: %w", err)
	}
	// Before anything is encrypted with it.
	if err := syncDir(filepath.Dir(name)); err != nil {
		return nil, err
	}
	return readKeyset(name)
}

// replaceKeyset puts another keyset into a file. Whoever reads it, and a crash, finds the old one or the new one.
func replaceKeyset(name string, keyset *inventory.Keyset) error {
	temporary, err := writeBeside(name, keyset)
	if err != nil {
		return err
	}
	defer os.Remove(temporary) // gone already unless the next line fails
	if err := os.Rename(temporary, name); err != nil {
		return fmt.Errorf("write the keyset: %w", err)
	}
	return syncDir(filepath.Dir(name))
}

// writeBeside writes a keyset into a new file beside another, down to the disk.
func writeBeside(name string, keyset *inventory.Keyset) (temporary string, err error) {
	text, err := keyset.Marshal()
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name))
	if err != nil {
		return "", fmt.Errorf("write the keyset: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", fmt.Errorf("write the keyset: %w", err)
	}
	return file.Name(), nil
}

// syncDir makes a file's new name last: without the old keyset's name and the new one's, nobody reads a key.
func syncDir(dir string) error {
	opened, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write the keyset: %w", err)
	}
	if err := errors.Join(opened.Sync(), opened.Close()); err != nil {
		return fmt.Errorf("write the keyset: %w", err)
	}
	return nil
}

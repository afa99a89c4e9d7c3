package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pgtest"
)

func TestTheFirstKeysetIsTheOneThatStaysRight(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	right, wrong := freshKeyset(t), freshKeyset(t)
	for range 2 {
		if err := CheckKeyset(t.Context(), db, right); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckKeyset(t.Context(), db, wrong); !errors.Is(err, ErrWrongKeyset) {
		t.Errorf("another keyset: %v", err)
	}
	if err := CheckKeyset(t.Context(), db, right); err != nil {
		t.Errorf("the right one after the wrong one: %v", err)
	}
	exec(t, db, `UPDATE keytill.canary SET ciphertext = '\x00'`)
	if err := CheckKeyset(t.Context(), db, right); !errors.Is(err, ErrWrongKeyset) {
		t.Errorf("a damaged canary: %v", err)
	}
}

// A keyset with the right encryption and another fingerprint part would read every key and see no duplicate.
func TestEachPartOfTheKeysetMustBeRight(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	right := freshKeyset(t)
	if err := CheckKeyset(t.Context(), db, right); err != nil {
		t.Fatal(err)
	}
	var a, b keysetDocument
	if err := errors.Join(json.Unmarshal(marshal(t, right), &a), json.Unmarshal(marshal(t, freshKeyset(t)), &b)); err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]keysetDocument{
		"another fingerprint part": {a.Encryption, b.Fingerprint},
		"another encryption part":  {b.Encryption, a.Fingerprint},
	} {
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		mixed, err := ParseKeyset(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckKeyset(t.Context(), db, mixed); !errors.Is(err, ErrWrongKeyset) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOfTwoFirstStartsWithDifferentKeysetsOneIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for range 10 {
		exec(t, db, `DELETE FROM keytill.canary`)
		keysets := []*Keyset{freshKeyset(t), freshKeyset(t)}
		errs := make([]error, len(keysets))
		var group errgroup.Group
		for i, keyset := range keysets {
			group.Go(func() error {
				errs[i] = CheckKeyset(t.Context(), db, keyset)
				return nil
			})
		}
		_ = group.Wait()
		if errs[0] != nil {
			errs[0], errs[1] = errs[1], errs[0]
		}
		if errs[0] != nil || !errors.Is(errs[1], ErrWrongKeyset) {
			t.Errorf("errors %v, want one to pass and one to be refused", errs)
		}
	}
}

// What the slower of two first starts does, once the faster one has sealed its canary.
func TestACanaryIsNeverReplaced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, second := freshKeyset(t), freshKeyset(t)
	if err := CheckKeyset(t.Context(), db, first); err != nil {
		t.Fatal(err)
	}
	if err := putCanary(t.Context(), db, second); err != nil {
		t.Fatal(err)
	}
	if err := CheckKeyset(t.Context(), db, first); err != nil {
		t.Error(err)
	}
}

func TestTwoFirstStartsWithOneKeysetBothPass(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return CheckKeyset(t.Context(), db, testKeyset()) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAnUnreachableDatabaseIsNotAWrongKeyset(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CheckKeyset(ctx, db, testKeyset()); err == nil || errors.Is(err, ErrWrongKeyset) {
		t.Error(err)
	}
}

package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/keytill/keytill/internal/pg"
)

// steps are the keysets of a rotation: the old one, with a new key, with that promoted, and with that alone.
func steps(t testing.TB) (old, added, promoted, last *Keyset) {
	t.Helper()
	old = freshKeyset(t)
	for _, step := range []struct {
		next *(*Keyset)
		make func() (*Keyset, error)
	}{
		{&added, func() (*Keyset, error) { return old.WithNewKeys() }},
		{&promoted, func() (*Keyset, error) { return added.Promoted() }},
		{&last, func() (*Keyset, error) { return promoted.WithoutOldKeys() }},
	} {
		next, err := step.make()
		if err != nil {
			t.Fatal(err)
		}
		*step.next = next
	}
	return old, added, promoted, last
}

// loadWith is load with a keyset of the test's own.
func loadWith(ctx context.Context, db *pgxpool.Pool, keyset *Keyset, imp Import) (report Report, err error) {
	imp.Actor, imp.At = "ann", noon
	err = pg.InTx(ctx, db, func(tx pgx.Tx) error {
		report, err = keyset.Load(ctx, tx, imp)
		return err
	})
	return report, err
}

// opened are the texts of all keys, in the order of sale, as a keyset opens them.
func opened(t testing.TB, db pg.Querier, keyset *Keyset) []string {
	t.Helper()
	ids := all[int64](t, db, `SELECT key_id FROM keytill.keys ORDER BY position`)
	byID, err := keyset.Texts(t.Context(), db, DefaultMerchant, ids)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, id := range ids {
		list = append(list, byID[id])
	}
	return list
}

func TestEachStepOfARotationUnderstandsTheOneBeforeAndAfter(t *testing.T) {
	t.Parallel()
	old, added, promoted, last := steps(t)
	all := []*Keyset{old, added, promoted, last}
	for i, writer := range all {
		sealed, err := writer.seal("m", 1, 2, []byte("TEXT"))
		if err != nil {
			t.Fatal(err)
		}
		for j, reader := range all {
			_, err := reader.open("m", 1, 2, sealed)
			if near := j-i <= 1 && i-j <= 1; near && err != nil {
				t.Errorf("step %d cannot read what step %d wrote: %v", j, i, err)
			}
		}
	}
	if bytes.Equal(fingerprint(t, added, "A"), fingerprint(t, promoted, "A")) || !bytes.Equal(fingerprint(t, old, "A"), fingerprint(t, added, "A")) {
		t.Error("the fingerprint changes with the promotion and not before")
	}
	for name, err := range map[string]error{
		"adding twice":            second(added.WithNewKeys()),
		"promoting nothing":       second(old.Promoted()),
		"dropping before promote": second(added.WithoutOldKeys()),
		"dropping nothing":        second(last.WithoutOldKeys()),
	} {
		if err == nil {
			t.Errorf("%s is no error", name)
		}
	}
	read, err := ParseKeyset(marshal(t, promoted))
	if err != nil || !read.IsPromoted() || !read.IsRotating() {
		t.Errorf("read again: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestRotationReachesEveryKeyAndOnlyThen(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	old, added, promoted, last := steps(t)
	if err := CheckKeyset(t.Context(), db, old); err != nil {
		t.Fatal(err)
	}
	if _, err := loadWith(t.Context(), db, old, Import{Pool: pool, File: strings.NewReader(keyFile(1, 2*rotatedAtOnce+7))}); err != nil {
		t.Fatal(err)
	}
	claim(t, db, NewClaimer(), pool, units("cs_1", 3))
	const rest = `SELECT string_agg(concat_ws(' ', key_id, state, position, order_id, unit), E'\n' ORDER BY key_id) FROM keytill.keys`
	before, texts := one[string](t, db, rest), opened(t, db, old)

	if _, err := added.Rotate(t.Context(), db, nil); !errors.Is(err, ErrNotPromoted) {
		t.Errorf("before the promotion: %v", err)
	}
	if err := promoted.Unused(t.Context(), db); !errors.Is(err, ErrKeysUsed) {
		t.Errorf("dropping before the rotation: %v", err)
	}
	var said RotationProgress
	rotated, err := promoted.Rotate(t.Context(), db, func(p RotationProgress) { said = p })
	if err != nil || rotated != 2*rotatedAtOnce+7 || said.Done != rotated || said.Total != rotated {
		t.Fatalf("%d rotated, last said %+v: %v", rotated, said, err)
	}
	if err := promoted.Unused(t.Context(), db); err != nil {
		t.Error(err)
	}
	if err := CheckKeyset(t.Context(), db, last); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(texts, opened(t, db, last)); diff != "" {
		t.Errorf("texts with the last keyset (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, one[string](t, db, rest)); diff != "" {
		t.Errorf("states and positions (-before +after):\n%s", diff)
	}
	if err := CheckKeyset(t.Context(), db, old); !errors.Is(err, ErrWrongKeyset) {
		t.Errorf("the old keyset: %v", err)
	}
	if again, err := promoted.Rotate(t.Context(), db, nil); again != 0 || err != nil {
		t.Errorf("a second time: %d, %v", again, err)
	}
	added, err = last.WithNewKeys()
	if err != nil {
		t.Fatal(err)
	}
	newer, err := added.Promoted()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newer.Rotate(t.Context(), db, nil); err != nil {
		t.Errorf("to newer keys: %v", err)
	}
	if _, err := promoted.Rotate(t.Context(), db, nil); !errors.Is(err, ErrOldKeyset) {
		t.Errorf("back to the keys before: %v", err)
	}
	whole(t, db)
}

func TestDuplicatesAreFoundBeforeDuringAndAfterARotation(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	other := makePool(t, db, "other")
	old, added, promoted, last := steps(t)
	if err := CheckKeyset(t.Context(), db, old); err != nil {
		t.Fatal(err)
	}
	if _, err := loadWith(t.Context(), db, old, Import{Pool: pool, File: strings.NewReader(keyFile(1, 300))}); err != nil {
		t.Fatal(err)
	}
	known := func(what string, keyset *Keyset) {
		t.Helper()
		report, err := loadWith(t.Context(), db, keyset, Import{Pool: pool, File: strings.NewReader(keyFile(1, 300)), Force: true})
		if err != nil || report.DuplicateInStock != 300 || report.New != 0 {
			t.Errorf("%s: %+v, %v", what, report, err)
		}
		report, err = loadWith(t.Context(), db, keyset, Import{Pool: other, File: strings.NewReader(keyFile(1, 300)), DryRun: true, AcrossPools: true})
		if err != nil || report.DuplicateElsewhere != 300 || report.New != 0 || len(report.Duplicates) != 300 || report.Duplicates[0].SKU != "game" {
			t.Errorf("%s, across pools: %d %d %d %v", what, report.DuplicateElsewhere, report.New, len(report.Duplicates), err)
		}
	}
	known("added", added)
	known("promoted", promoted)
	// Killed after the first part.
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := promoted.Rotate(ctx, db, func(RotationProgress) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := one[int64](t, db, countOld, DefaultMerchant, promoted.ciphertextStart(), promoted.fingerprintStart()); n != 300-rotatedAtOnce {
		t.Errorf("%d are left, want %d", n, 300-rotatedAtOnce)
	}
	known("in the midst", promoted)
	if err := promoted.Unused(t.Context(), db); !errors.Is(err, ErrKeysUsed) {
		t.Errorf("dropping in the midst: %v", err)
	}
	if _, err := loadWith(t.Context(), db, added, Import{Pool: pool, File: strings.NewReader("NEW")}); !errors.Is(err, ErrOldKeyset) {
		t.Errorf("an import with the old primary: %v", err)
	}
	if rotated, err := promoted.Rotate(t.Context(), db, nil); err != nil || rotated != 300-rotatedAtOnce {
		t.Errorf("the rest: %d, %v", rotated, err)
	}
	known("after", promoted)
	known("dropped", last)
}

func TestRotationPassesOverLockedKeysAndComesBack(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	old, _, promoted, _ := steps(t)
	if err := CheckKeyset(t.Context(), db, old); err != nil {
		t.Fatal(err)
	}
	if _, err := loadWith(t.Context(), db, old, Import{Pool: pool, File: strings.NewReader(keyFile(1, 10))}); err != nil {
		t.Fatal(err)
	}
	holder := begin(t, db, pgx.TxOptions{})
	if _, err := NewClaimer().Claim(t.Context(), holder, request(pool, units("cs_1", 2))); err != nil {
		t.Fatal(err)
	}
	var rounds atomic.Int64
	if _, err := promoted.Rotate(t.Context(), db, func(p RotationProgress) {
		if rounds.Add(1) == 3 {
			if p.Done != 8 {
				t.Errorf("%d done beside two locked keys, want 8", p.Done)
			}
			_ = holder.Commit(context.Background())
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := promoted.Unused(t.Context(), db); err != nil {
		t.Error(err)
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys WHERE state = 'allocated'`); n != 2 {
		t.Errorf("%d allocated", n)
	}
	whole(t, db)
}

func TestRotationBesideClaimsAndImports(t *testing.T) {
	t.Parallel()
	db, pool := stocked(t, 0)
	old, _, promoted, last := steps(t)
	if err := CheckKeyset(t.Context(), db, old); err != nil {
		t.Fatal(err)
	}
	if _, err := loadWith(t.Context(), db, old, Import{Pool: pool, File: strings.NewReader(keyFile(1, 1500))}); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.Go(func() error {
		_, err := promoted.Rotate(t.Context(), db, nil)
		return err
	})
	claimer := NewClaimer()
	for n := range 4 {
		group.Go(func() error {
			for i := range 25 {
				if _, err := settleClaim(t.Context(), db, claimer, request(pool, units(fmt.Sprintf("cs_%d_%d", n, i), 2))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for i := range 4 {
			// Half of each file is known, under the old fingerprints or the new.
			report, err := loadWith(t.Context(), db, promoted, Import{Pool: pool, File: strings.NewReader(keyFile(1401+100*i, 1600+100*i))})
			if err != nil {
				return err
			}
			if report.New != 100 {
				return fmt.Errorf("%d were new", report.New)
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := promoted.Rotate(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	list := opened(t, db, last)
	if len(list) != 1900 {
		t.Fatalf("%d keys", len(list))
	}
	for i, text := range list {
		if text != fmt.Sprintf("KEY-%d", i+1) {
			t.Fatalf("the key in place %d is %s", i, text)
		}
	}
	if n := one[int64](t, db, `SELECT count(*) FROM keytill.keys WHERE state = 'allocated'`); n != 200 {
		t.Errorf("%d allocated", n)
	}
	whole(t, db)
}

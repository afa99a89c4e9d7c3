package main_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
)

// nextVersion builds keytill with one migration more, in a place that only the build sees.
func nextVersion(t *testing.T, binary string) {
	t.Helper()
	dir := t.TempDir()
	migration := filepath.Join(dir, "next.sql")
	writeFile(t, migration, "-- +goose Up\nALTER TABLE keytill.orders ADD COLUMN of_the_next_version text;\n")
	root, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	writeFile(t, overlay, fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "migrations", "99999_next.sql"), migration))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("the next version does not build: %v\n%s", err, out)
	}
}

func TestRecipeUpgrade(t *testing.T) {
	t.Parallel()
	need(t, "pg_dump")
	k, stripe, _ := newKitchen(t, stripefake.Config{})
	second := freeAddress(t)
	k.instead = append(k.instead, "127.0.0.1:8081", second)
	for _, dir := range []string{"old", "new"} {
		if err := os.Mkdir(filepath.Join(k.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	nextVersion(t, filepath.Join(k.dir, "new", "keytill"))
	k.must(`ln -s ` + program(t) + ` old/keytill
		keytill keyset new > keyset.json; export KEYTILL_KEYSET_FILE=keyset.json; keytill migrate
		printf '%s\n' EDITOR-1 EDITOR-2 EDITOR-3 > keys.txt
		keytill pool create editor; keytill pool map editor --price price_editor; keytill import editor keys.txt
		KEYTILL_LISTEN=` + k.address + ` old/keytill serve 2>> one.log & one=$!
		KEYTILL_LISTEN=` + second + ` old/keytill serve 2>> two.log & two=$!
		until curl -fs http://` + k.address + `/readyz && curl -fs http://` + second + `/readyz; do sleep 0.2; done`)
	sold := 0
	// Both daemons sell, whichever version they are.
	bothSell := func() {
		for _, address := range []string{k.address, second} {
			sold++
			session := fmt.Sprintf("cs_%d", sold)
			if err := sell(stripe, session, "price_editor*1@1900"); err != nil {
				t.Fatal(err)
			}
			deliver(t, stripe, "http://"+address+"/webhooks/stripe", session)
			eventually(t, session+" has its key", func() bool {
				printed, _ := k.terminal.run("old/keytill order show " + session + " | grep -c fulfilled\n")
				return printed == "1\n"
			})
		}
	}
	k.after("new/keytill migrate", bothSell) // the old ones, on the new schema
	k.after("new/keytill doctor", func() { k.must("seq 100 | new/keytill import editor -"); bothSell() })
	k.after("old/keytill serve", bothSell)
	k.cook("upgrade")
	k.must("kill $one $two; wait $one $two")
}

// asPgBouncer makes a directory and its files those of the account that PgBouncer, which refuses to be root, runs as.
func asPgBouncer(t *testing.T, dir string) (account string) {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, uid, -1); err != nil {
			t.Fatal(err)
		}
		return name
	}
	t.Fatal("there is no account that PgBouncer could run as: postgres or nobody")
	return ""
}

func TestRecipePgBouncer(t *testing.T) {
	t.Parallel()
	need(t, "pgbouncer", "psql")
	k, stripe, _ := newKitchen(t, stripefake.Config{})
	k.dir = openDir(t)
	direct, err := url.Parse(k.database)
	if err != nil {
		t.Fatal(err)
	}
	database := direct.Path[1:]
	password, _ := direct.User.Password()
	pooler, second := freeAddress(t), freeAddress(t)
	_, port, err := net.SplitHostPort(pooler)
	if err != nil {
		t.Fatal(err)
	}
	k.instead = append(k.instead,
		"keytill = host=127.0.0.1 port=5432 dbname=keytill", fmt.Sprintf("%[3]s = host=%[1]s port=%[2]s dbname=%[3]s", direct.Hostname(), direct.Port(), database),
		"listen_port = 6432", "listen_port = "+port,
		`"keytill" "password…"`, fmt.Sprintf("%q %q", direct.User.Username(), password),
		"postgres://keytill:password…@127.0.0.1:6432/keytill", fmt.Sprintf("postgres://%s@%s/%s", direct.User, pooler, database),
		"127.0.0.1:8081", second)
	if os.Geteuid() == 0 {
		account := asPgBouncer(t, k.dir)
		k.instead = append(k.instead, "chmod 600 userlist.txt", "chmod 600 userlist.txt; chown "+account+" userlist.txt",
			"pgbouncer -q pgbouncer.ini", "pgbouncer -q -u "+account+" pgbouncer.ini")
	}
	k.must("keytill keyset new > keyset.json; export KEYTILL_KEYSET_FILE=keyset.json")

	const orders = 40
	ended := make(chan error, 1)
	k.after("keytill import", func() {
		go func() { ended <- postToEither(t.Context(), stripe, orders, k.address, second) }()
	})
	k.after("kill -9 $one", func() {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		db := pgtest.Pool(t, k.database)
		eventually(t, "all orders have their keys", func() bool {
			var n int
			if err := db.QueryRow(t.Context(), `SELECT count(*) FROM keytill.keys WHERE state = 'allocated'`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == orders
		})
	})
	k.cook("pgbouncer")
	k.must("kill $two; wait $two; kill $pgbouncer; wait $pgbouncer || true")
	k.must("! grep -iE 'prepared statement|got packet' one.log two.log pgbouncer.log")
}

// postToEither sells, and has Stripe post the events to one of two daemons after the other, and to the other one where one
// does not take it.
func postToEither(ctx context.Context, stripe *stripefake.Server, orders int, addresses ...string) error {
	for i := range orders {
		session := fmt.Sprintf("cs_%d", i)
		if err := sell(stripe, session, "price_editor*1@1900"); err != nil {
			return err
		}
		event, err := stripe.Event("checkout.session.completed", session, stripefake.EventOptions{})
		if err != nil {
			return err
		}
		for attempt := 0; ; attempt++ {
			status, _, err := stripe.Deliver(ctx, "http://"+addresses[(i+attempt)%len(addresses)]+"/webhooks/stripe", event)
			if err == nil && status == http.StatusOK {
				break
			}
			if attempt == 20 {
				return fmt.Errorf("nobody takes the event of %s: %d, %w", session, status, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

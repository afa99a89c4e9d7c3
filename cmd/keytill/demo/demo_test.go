package demo_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/keytill/keytill/cmd/keytill/demo"
	"github.com/keytill/keytill/inventory"
)

func TestDemoEndsAsItShouldAndLeavesNothing(t *testing.T) {
	var steps []string
	report, err := demo.Run(t.Context(), demo.Config{Orders: 7, Keys: 7, Progress: func(p demo.Progress) {
		if p.Over {
			steps = append(steps, p.Step)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK {
		t.Errorf("a promise was broken: %+v", report.Checks)
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"keys", report.Keys, []demo.Count{{State: "available", N: 0}, {State: "allocated", N: 8}, {State: "revoked", N: 1}}},
		{"units", report.Units, []demo.Count{{State: "fulfilled", N: 8}, {State: "revoked", N: 1}}},
		{"orders", report.Orders, []demo.Count{{State: "paid", N: 8}, {State: "refunded", N: 1}}},
		// Three events an order but for the lost one, and two of the refund; each three times, and those of the two that
		// were held up three times more.
		{"events", report.Events, demo.Events{Posted: 23*3 + 2*9, Recorded: 23, Done: 23}},
		{"steps", len(steps), 9},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	for _, d := range report.Deliveries {
		if d.Sent == 0 || d.Sent != d.Arrived {
			t.Errorf("%s %s: %d sent, %d arrived", d.Channel, d.Type, d.Sent, d.Arrived)
		}
	}
	if leaks := goleak.Find(); leaks != nil {
		t.Error(leaks)
	}
}

func TestAShopThatStaysOpenEndsWithItsContextAndLeavesNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opened := 0
	report, err := demo.Run(ctx, demo.Config{Orders: 2, Keys: 2, Stay: listener, Opened: func(r demo.Report) {
		opened++
		if r.Open == nil || !strings.Contains(printed(r), r.Open.Token) {
			t.Errorf("it is not said how to get in:\n%s", printed(r))
			return
		}
		resp, err := http.Get(r.Open.Metrics)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		stop()
	}})
	if err != nil || !report.OK || opened != 1 {
		t.Errorf("opened %d times, %+v, %v", opened, report.Checks, err)
	}
	if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("it is still open")
	}
	if leaks := goleak.Find(); leaks != nil {
		t.Error(leaks)
	}
}

func TestFewerKeysThanOrdersLeaveSomeWaiting(t *testing.T) {
	report, err := demo.Run(t.Context(), demo.Config{Orders: 5, Keys: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || report.Waiting != 3 {
		t.Errorf("%d wait, want 3; checks: %+v", report.Waiting, report.Checks)
	}
	if text := printed(report); !strings.Contains(text, "3 units still wait") {
		t.Errorf("it is not said that units wait:\n%s", text)
	}
}

func TestMoreKeysThanOrdersSellTheRestAtOnce(t *testing.T) {
	report, err := demo.Run(t.Context(), demo.Config{Orders: 1, Keys: 9})
	if err != nil {
		t.Fatal(err)
	}
	if want := []demo.Count{{State: "fulfilled", N: 10}, {State: "revoked", N: 1}}; !report.OK || !cmp.Equal(report.Units, want) {
		t.Errorf("units %+v, want %+v; checks: %+v", report.Units, want, report.Checks)
	}
}

func TestABrokenPromiseIsFound(t *testing.T) {
	for _, broken := range []struct {
		name, statement, promise string
	}{
		{"two orders with one key", `
WITH two AS (SELECT min(key_id) AS a, max(key_id) AS b FROM keytill.keys WHERE state = 'allocated'),
gone AS (DELETE FROM keytill.keys USING two WHERE key_id = b)
UPDATE keytill.fulfilments SET key_id = a FROM two WHERE key_id = b`, "no key went out twice"},
		{"a key taken away without a trace", `
UPDATE keytill.keys SET state = 'available', order_id = NULL, line_id = NULL, unit = NULL
 WHERE key_id = (SELECT min(key_id) FROM keytill.keys WHERE state = 'allocated')`, "keys, units, counts and ledger agree"},
		{"a unit without its key", `
UPDATE keytill.fulfilments SET state = 'waiting', key_id = NULL
 WHERE key_id = (SELECT min(key_id) FROM keytill.fulfilments WHERE state = 'fulfilled')`, "everyone who paid has a key"},
		{"keys exchanged after the mail", `
WITH two AS (SELECT min(key_id) AS a, max(key_id) AS b FROM keytill.fulfilments WHERE state = 'fulfilled')
UPDATE keytill.fulfilments f SET key_id = CASE key_id WHEN a THEN b ELSE a END FROM two WHERE key_id IN (a, b)`, "every mail holds the keys"},
		{"a refund undone", `
UPDATE keytill.fulfilments SET state = 'fulfilled', revoked_by = NULL WHERE state = 'revoked'`, "the refunded key is revoked"},
		{"an event forgotten", `
UPDATE keytill.events SET state = 'ignored' WHERE event_id = (SELECT min(event_id) FROM keytill.events)`, "every webhook is recorded once"},
		{"a hook that was not sent", `
UPDATE keytill.deliveries SET state = 'failed' WHERE delivery_id = (SELECT min(delivery_id) FROM keytill.deliveries WHERE channel = 'hook')`,
			"every hook"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			report, err := demo.Run(t.Context(), demo.Config{Orders: 3, Keys: 3, BeforeChecks: func(ctx context.Context, db *pgxpool.Pool, _ *inventory.Keyset) error {
				tag, err := db.Exec(ctx, broken.statement)
				if err == nil && tag.RowsAffected() == 0 {
					err = errors.New("nothing was broken")
				}
				return err
			}})
			if err != nil {
				t.Fatal(err)
			}
			if report.OK {
				t.Error("the report says that all is well")
			}
			for _, c := range report.Checks {
				if strings.HasPrefix(c.Promise, broken.promise) {
					if len(c.Problems) == 0 {
						t.Errorf("%q held; checks: %+v", c.Promise, report.Checks)
					}
					return
				}
			}
			t.Errorf("no check of %q", broken.promise)
		})
	}
}

func TestAKeyInTheClearIsFound(t *testing.T) {
	var key string
	report, err := demo.Run(t.Context(), demo.Config{Orders: 1, Keys: 1,
		BeforeChecks: func(ctx context.Context, db *pgxpool.Pool, keyset *inventory.Keyset) error {
			var id int64
			if err := db.QueryRow(ctx, `SELECT min(key_id) FROM keytill.keys`).Scan(&id); err != nil {
				return err
			}
			texts, err := keyset.Texts(ctx, db, inventory.DefaultMerchant, []int64{id})
			if err != nil {
				return err
			}
			key = texts[id]
			_, err = db.Exec(ctx, `UPDATE keytill.orders SET name = $1`, "has "+key)
			return err
		}})
	if err != nil {
		t.Fatal(err)
	}
	last := report.Checks[len(report.Checks)-1]
	if len(last.Problems) != 1 || strings.Contains(last.Problems[0], key) || report.OK {
		t.Errorf("problems: %q", last.Problems)
	}
}

func TestStoppedEarlyItLeavesNothing(t *testing.T) {
	// Not t.TempDir: PostgreSQL's account must be able to enter it, and that one's parent is closed.
	dir, err := os.MkdirTemp("", "demo-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err = demo.Run(ctx, demo.Config{Orders: 40, Keys: 40, Progress: func(p demo.Progress) {
		if p.Done > 3 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "keytill-pg-*", "cluster-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if leaks := goleak.Find(); leaks != nil {
		t.Error(leaks)
	}
}

func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	for _, c := range []demo.Config{{Orders: 0, Keys: 1}, {Orders: 1, Keys: 0}, {Orders: demo.Most + 1, Keys: 1}, {Orders: 1, Keys: -3}} {
		if _, err := demo.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "must be from 1 to 10000") {
			t.Errorf("%d orders, %d keys: %v", c.Orders, c.Keys, err)
		}
	}
}

func TestEveryLineFitsTheScreen(t *testing.T) {
	var out bytes.Buffer
	printer := &demo.Printer{W: &out}
	c := demo.Config{Orders: 30, Keys: 12, Progress: printer.Progress}
	printer.Head(c)
	report, err := demo.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	printer.Report(report)
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > 80 || strings.TrimRight(line, " ") != line || strings.Contains(line, "\x1b") {
			t.Errorf("%q", line)
		}
	}
}

func printed(r demo.Report) string {
	var out bytes.Buffer
	(&demo.Printer{W: &out}).Report(r)
	return out.String()
}

package integration_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/inventory"
)

// secret begins every key of the busy run, and nothing else.
const secret = "PLAINTEXT"

// forms are the shapes that a text can hide in: base64 at each of its three alignments, without the characters that
// depend on what stands around.
func forms(text string) [][]byte {
	found := [][]byte{[]byte(text), []byte(hex.EncodeToString([]byte(text))), []byte(strings.ToUpper(hex.EncodeToString([]byte(text))))}
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, before), text...))
		found = append(found, []byte(encoded[(before*8+5)/6:len(encoded)-4]))
	}
	return found
}

func holds(text []byte, wanted string) bool {
	for _, form := range forms(wanted) {
		if bytes.Contains(text, form) {
			return true
		}
	}
	return false
}

// wholeLog keeps all of a log.
type wholeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes a line.
func (l *wholeLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *wholeLog) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.text.Bytes())
}

// A busy day on a database of its own, and then the keys' texts are looked for in everything that stays: every table, every
// file of the cluster with its write-ahead log, all of keytill's log, and the metrics.
func TestNoKeyIsLegibleInWhatABusyDayLeaves(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{})
	log := &wholeLog{}
	w := newTown(t, func(w *town) { w.url, w.db = server.URL(), pgtest.Pool(t, server.URL()) })
	w.mail, w.hooks = smtptest.Start(), hooktest.Start(hooktest.NewSecret())
	w.receiver = newReceiver(w.hooks, w.clock.now)
	t.Cleanup(func() { w.mail.Close(); w.receiver.close(); w.hooks.Close() })
	l := newLife(w.clock.now())
	config, err := w.scenario.config(w.ctx, l)
	w.must(err)
	config.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.must(l.launch(w.ctx, config))
	w.life = l
	stopped := false
	defer func() {
		if !stopped {
			_ = l.stop()
		}
	}()
	w.must(w.awaitChannels(w.ctx, l))
	w.busyDay(l)

	metrics := w.metrics(l)
	w.must(l.stop())
	stopped = true
	marker := "MARKER-" + secret[:4]
	_, err = w.db.Exec(w.ctx, `UPDATE keytill.batches SET supplier = $1`, marker)
	w.must(err)
	_, err = w.db.Exec(w.ctx, `CHECKPOINT`)
	w.must(err)
	config.Logger.Debug(marker)

	dump := w.dump()
	for what, text := range map[string][]byte{"the log": log.bytes(), "the dump": dump} {
		if holds(text, secret) {
			t.Errorf("%s holds a key", what)
		}
		if !holds(text, marker) {
			t.Errorf("%s of %d bytes does not hold what was put there", what, len(text))
		}
	}
	if bytes.Contains(log.bytes(), []byte("@")) {
		at := bytes.IndexByte(log.bytes(), '@')
		t.Errorf("the log holds an address: …%s…", log.bytes()[max(0, at-200):min(len(log.bytes()), at+60)])
	}
	if holds(metrics, secret) {
		t.Error("the metrics hold a key")
	}
	inFiles, marked := w.searchFiles(server.Dir(), marker)
	if len(inFiles) > 0 {
		t.Errorf("files hold a key: %v", inFiles)
	}
	if !strings.Contains(strings.Join(marked, " "), "pg_wal") || len(marked) < 2 {
		t.Errorf("what was put there is in %v", marked)
	}
}

// busyDay does what people and machines do with keys.
func (w *town) busyDay(l *life) {
	w.t.Helper()
	service := l.shop.Service()
	pool := w.stock(l.shop, "game", 0, 1, "price_game")
	load := func(name, text string, change func(*inventory.Import)) error {
		imp := inventory.Import{Pool: pool, File: strings.NewReader(text), FileName: name, Actor: "test"}
		if change != nil {
			change(&imp)
		}
		_, _, err := service.Import(w.ctx, imp)
		return err
	}
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, "%s-%d\n", secret, i)
	}
	w.sell("cs_early", "price_game*2")
	w.must(w.tell(l, "checkout.session.completed", "cs_early"))
	w.must(load("a.txt", lines.String(), nil))
	w.must(load("b.csv", fmt.Sprintf("key\n%s-1\n%s-90\n", secret, secret), nil))
	w.must(load("c.csv", fmt.Sprintf("key\n%s-1\n%s-91\n", secret, secret), func(i *inventory.Import) { i.DryRun = true }))
	for _, bad := range []error{
		load("a.txt", lines.String(), nil),
		load("d.csv", fmt.Sprintf("key\n%s-92\n\"%s\n", secret, secret), nil),
		load("e.csv", fmt.Sprintf("%s-93,%s-94\n", secret, secret), nil),
		load("f.txt", fmt.Sprintf("%s-95\x00\n", secret), nil),
		load("g.txt", lines.String()+"\n", func(i *inventory.Import) { i.Duplicates = inventory.RefuseDuplicates }),
	} {
		if bad == nil {
			w.t.Error("a bad file was taken")
		} else if holds([]byte(bad.Error()), secret) {
			w.t.Errorf("an error holds a key: %v", bad)
		}
	}
	for i := range 6 {
		id := fmt.Sprintf("day%d", i)
		w.sell("cs_"+id, "price_game*2")
		w.must(w.tell(l, "checkout.session.completed", "cs_"+id))
	}
	w.must(w.settle(w.ctx))
	w.must(w.stripe.Refund("re_1", "pi_day1", nil))
	w.must(w.tell(l, "charge.refunded", "ch_day1"))
	w.must(service.ReplaceKey(w.ctx, pool.Merchant, fulfillment.UnitRef{Order: "cs_day2", Unit: 1}, somebody))
	w.must(service.RevokeKey(w.ctx, pool.Merchant, fulfillment.UnitRef{Order: "cs_day3", Unit: 1}, somebody))
	w.must(service.Resend(w.ctx, pool.Merchant, "cs_day4", "", somebody))
	order, err := fulfillment.LoadOrder(w.ctx, w.db, pool.Merchant, "cs_day4")
	w.must(err)
	texts, err := service.Reveal(w.ctx, pool.Merchant, order, somebody)
	w.must(err)
	for _, text := range texts {
		if !strings.HasPrefix(text, secret) {
			w.t.Error("the day's keys are not those that are looked for")
		}
		_, err := w.keyset.Verify(w.ctx, w.db, pool.Merchant, text, "")
		w.must(err)
	}
	w.must(w.settle(w.ctx))
	w.hold()
}

// metrics are what keytill measures, if it serves them here.
func (w *town) metrics(l *life) []byte {
	w.t.Helper()
	response, err := http.Get(l.url + "/metrics")
	w.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.must(err)
	return text
}

// dump is the text of every row of every table.
func (w *town) dump() []byte {
	w.t.Helper()
	rows, err := w.db.Query(w.ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	w.must(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	conn, err := w.db.Acquire(w.ctx)
	w.must(err)
	defer conn.Release()
	var text bytes.Buffer
	for _, table := range tables {
		_, err := conn.Conn().PgConn().CopyTo(w.ctx, &text, "COPY "+table+" TO STDOUT")
		w.must(err)
	}
	return text.Bytes()
}

// searchFiles lists the files of a directory that hold a key, and those that hold the marker.
func (w *town) searchFiles(dir, marker string) (keys, marked []string) {
	w.t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server removes files as it likes
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if holds(text, secret) {
			keys = append(keys, path)
		}
		if holds(text, marker) {
			marked = append(marked, path)
		}
		return err
	})
	w.must(err)
	return keys, marked
}

func TestFormsAreFoundWhereverTheyStand(t *testing.T) {
	t.Parallel()
	for before := range 6 {
		text := []byte(strings.Repeat("x", before) + secret + "-123 and more")
		if !holds([]byte(base64.StdEncoding.EncodeToString(text)), secret) || !holds([]byte(hex.EncodeToString(text)), secret) || !holds(text, secret) {
			t.Errorf("with %d bytes before", before)
		}
	}
	if holds([]byte("PLAIN-TEXT"), secret) {
		t.Error("found where it is not")
	}
}

// Every ciphertext is tried on the place of every other.
func TestACiphertextOpensInItsOwnPlaceAlone(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	l := w.open()
	var ids []int64
	for _, sku := range []string{"one", "two"} {
		pool := w.stock(l.shop, sku, 12, 1, "price_"+sku)
		mine, err := w.keyIDs(pool)
		w.must(err)
		ids = append(ids, mine...)
	}
	for _, from := range ids {
		for _, to := range ids {
			if from == to {
				continue
			}
			tx, err := w.db.Begin(w.ctx)
			w.must(err)
			_, err = tx.Exec(w.ctx, `UPDATE keytill.keys SET ciphertext = (SELECT ciphertext FROM keytill.keys WHERE key_id = $1) WHERE key_id = $2`, from, to)
			w.must(err)
			if texts, err := w.keyset.Texts(w.ctx, tx, inventory.DefaultMerchant, []int64{to}); err == nil {
				t.Errorf("the ciphertext of key %d opens as key %d: %v", from, to, texts)
			}
			w.must(tx.Rollback(w.ctx))
		}
	}
	if texts, err := w.keyset.Texts(w.ctx, w.db, inventory.DefaultMerchant, ids); err != nil || len(texts) != len(ids) {
		t.Errorf("in their own places %d of %d open: %v", len(texts), len(ids), err)
	}
}

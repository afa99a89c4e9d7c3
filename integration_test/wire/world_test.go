package wire

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
	"github.com/keytill/keytill/internal/pgproxy"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

const (
	// appName is what PostgreSQL calls the connections that come through the proxy.
	appName = "keytill through the proxy"

	merchant = inventory.DefaultMerchant

	// waitsFor is how long a unit may wait beside stock right after a disturbance: its job serves it.
	waitsFor = time.Hour
)

// A world is one shop with two keytills, one of which reaches its database through the proxy.
type world struct {
	t       *testing.T
	shop    *shoptest.Shop // prepares, takes over, and judges
	till    *shoptest.Shop // the disturbed one
	proxy   *pgproxy.Proxy
	trouble trouble
	rounds  int
	serial  int                       // of keys
	pools   map[string]inventory.Pool // by SKU
	doors   map[*shoptest.Shop]string // of keytills in whose way events gather
}

var discard = slog.New(slog.DiscardHandler)

// newWorld gives the disturbed keytill one connection: so the messages of an operation come in the same order each time, and
// no operation may need two at once.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, 1)
}

func newWorldOf(t *testing.T, conns int32) *world {
	t.Helper()
	url := pgtest.NewURL(t)
	w := &world{t: t, pools: make(map[string]inventory.Pool)}
	w.shop = shoptest.Open(t, shoptest.Config{DB: pgtest.Pool(t, url)})
	config, err := pgxpool.ParseConfig(url)
	w.shop.Must(err)
	w.proxy = pgproxy.Start(config.ConnConfig, w.trouble.pass)
	t.Cleanup(w.proxy.Close)
	w.proxy.Redirect(config.ConnConfig)
	config.ConnConfig.RuntimeParams["application_name"] = appName
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	w.shop.Must(err)
	t.Cleanup(pool.Close)
	w.till = w.shop.Beside(pool)
	w.shop.Must(w.shop.Service.ServeChannels(t.Context(), []fulfillment.Channel{fulfillment.ChannelEmail, fulfillment.ChannelHook}))
	for _, sku := range []string{"full", "dry"} {
		w.pools[sku] = w.pool(sku)
	}
	return w
}

// pool makes a pool that sells price_<sku>.
func (w *world) pool(sku string) inventory.Pool {
	w.t.Helper()
	p := inventory.Pool{Merchant: merchant, SKU: sku, Name: sku, Shortage: inventory.Wait, CreatedAt: w.shop.Now()}
	w.shop.Must(pgx.BeginFunc(w.t.Context(), w.shop.DB, func(tx pgx.Tx) (err error) {
		p, err = inventory.CreatePool(w.t.Context(), tx, p)
		return err
	}))
	w.shop.Must(w.shop.Service.Map(w.t.Context(), merchant, "price_"+sku, &p, 1))
	return p
}

// wipe empties the database of what rounds have made, so that looking at all of it stays cheap.
func (w *world) wipe(op operation) {
	w.t.Helper()
	_, err := w.shop.DB.Exec(w.t.Context(), `
TRUNCATE keytill.keys, keytill.movements, keytill.batches, keytill.stock, keytill.events, keytill.orders, keytill.lines,
         keytill.fulfilments, keytill.refunds, keytill.disputes, keytill.deliveries, keytill.findings, keytill.audit,
         keytill.reservations, keytill.reservation_attempts, keytill.river_job CASCADE`)
	w.shop.Must(err)
	_, err = w.shop.DB.Exec(w.t.Context(), `INSERT INTO keytill.stock (merchant_id, pool_id) SELECT merchant_id, pool_id FROM keytill.pools`)
	w.shop.Must(err)
	if op.stock != nil {
		op.stock(w)
	}
}

// newFile is so many new keys.
func (w *world) newFile(keys int) *bytes.Reader {
	var text bytes.Buffer
	for range keys {
		w.serial++
		fmt.Fprintf(&text, "KEY-%08d-%s\n", w.serial, strings.Repeat("x", 24))
	}
	return bytes.NewReader(text.Bytes())
}

// fill puts keys on a shelf.
func (w *world) fill(sku string, keys int) {
	w.t.Helper()
	w.serial++
	_, _, err := w.shop.Service.Import(w.t.Context(), inventory.Import{Pool: w.pools[sku], File: w.newFile(keys),
		FileName: fmt.Sprintf("fill-%d", w.serial), Actor: "test"})
	w.shop.Must(err)
}

// forward moves the clock of both keytills and Stripe.
func (w *world) forward(by time.Duration) { w.shop.GoTo(w.shop.Now().Add(by)) }

// sell has a buyer pay for a session at Stripe, of which nobody tells keytill.
func (r *round) sell(items string, fields stripefake.Fields) (session string) {
	r.t.Helper()
	session = r.name("cs", len(r.orders))
	r.orders = append(r.orders, session)
	parsed, err := stripefake.ParseItems(items)
	r.shop.Must(err)
	r.shop.Must(r.shop.Stripe.Session(session, parsed, fields))
	return session
}

// told records an event at keytill's undisturbed door.
func (r *round) told(typ, id string) (event string) {
	r.t.Helper()
	ev, err := r.shop.Stripe.Event(typ, id, stripefake.EventOptions{})
	r.shop.Must(err)
	status, body, err := r.shop.Stripe.Deliver(r.t.Context(), r.shop.Webhook.URL, ev)
	r.shop.Must(err)
	if status != 200 {
		r.t.Fatalf("%s of %s was answered %d %s", typ, id, status, body)
	}
	r.events, r.answered = append(r.events, ev.ID), append(r.answered, ev.ID)
	return ev.ID
}

// settled has the undisturbed keytill settle an order.
func (r *round) settled(session string) {
	r.t.Helper()
	_, err := r.shop.Service.Settle(r.t.Context(), merchant, session)
	r.shop.Must(err)
}

// intent is the PaymentIntent of a session, as the fake names it.
func intent(session string) string { return "pi_" + strings.TrimPrefix(session, "cs_") }

func (r *round) terminate(pid uint32) {
	// False, without an error, is for a process that has ended by itself.
	if _, err := r.shop.DB.Exec(r.t.Context(), `SELECT pg_terminate_backend($1, 5000)`, int32(pid)); err != nil {
		r.t.Errorf("kill backend %d: %v", pid, err)
	}
}

// somebodyWaits reports whether a keytill waits for another's lock.
func (w *world) somebodyWaits() bool {
	var waits bool
	err := w.shop.DB.QueryRow(w.t.Context(), `
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
	return err == nil && waits
}

// collect runs a query of one column.
func collect[T any](w *world, sql string, args ...any) []T {
	w.t.Helper()
	rows, err := w.shop.DB.Query(w.t.Context(), sql, args...)
	w.shop.Must(err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[T])
	w.shop.Must(err)
	return found
}

// commits are the messages that end a transaction, by their place among those of their side.
func commits(seen []pgproxy.Message) map[point]bool {
	count := make(map[pgproxy.Side]int)
	found := make(map[point]bool)
	for _, m := range seen {
		count[m.From]++
		if strings.EqualFold(m.SQL, "commit") {
			found[point{m.From, count[m.From]}] = true
		}
	}
	return found
}

var sides = []pgproxy.Side{pgproxy.Client, pgproxy.Server}

// modeOf is the one mode in which a message is struck in the short form: each in turn, and not the same for both sides.
func modeOf(p point, stride int) mode {
	return modes[(p.n/stride+slices.Index(sides, p.side)*2)%len(modes)]
}

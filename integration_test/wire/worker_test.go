package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/pgproxy"
	"github.com/keytill/keytill/internal/smtptest"
)

// The daemon's jobs are fetched, worked and noted by the job queue's own statements, on many connections at once and in no
// order. Each kind of message of them is struck in a keytill that has just started, from the webhook to the mail and the hook:
// it stays up, and the sale comes to its end.
func TestEveryMessageOfTheJobQueue(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	found := w.kinds()
	t.Logf("%d kinds of messages", len(found))
	struck, rounds := 0, 0
	var missed []kind
	for i, k := range found {
		chosen := suddenModes
		if !*long {
			if i%queueStride != 0 {
				continue
			}
			chosen = suddenModes[i/queueStride%len(suddenModes):][:1]
		}
		for _, m := range chosen {
			hit := false
			for try := 0; try < 3 && !hit; try++ { // now and then nothing of the kind is said
				rounds++
				hit = w.run(m, func(m pgproxy.Message, _ int) bool { return kindOf(m) == k })
			}
			if !hit {
				missed = append(missed, k)
				continue
			}
			struck++
		}
	}
	form := "each in each mode"
	if !*long {
		form = fmt.Sprintf("every %d. in one mode, in turn,", queueStride)
	}
	t.Logf("%d kinds of messages, %s of %q: %d struck in %d rounds; not said again: %v", len(found), form, suddenModes, struck, rounds, missed)
	if len(missed) > len(found)/10 {
		t.Errorf("%d of %d kinds of messages were not struck", len(missed), len(found))
	}
}

// kinds are those of a keytill that nothing happens to: in the long form all, with those that come only now and then; else
// the job queue's own that come each time.
func (w *workers) kinds() []kind {
	w.t.Helper()
	var found []kind
	times := make(map[kind]int)
	for round := range 2 {
		w.run("nothing happens", func(pgproxy.Message, int) bool { return false })
		for _, m := range w.trouble.seen {
			k := kindOf(m)
			if (*long || k.ofQueue()) && !slices.Contains(found, k) {
				found = append(found, k)
			}
			if times[k] == round { // once a round
				times[k]++
			}
		}
	}
	return slices.DeleteFunc(found, func(k kind) bool { return !*long && times[k] < 2 })
}

// A connection that breaks while a keytill starts to listen leaves none of its queues unworked.
func TestAConnectionThatBreaksWhileItBeginsToListen(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	for _, topic := range []string{"river_insert", "river_control", "river_leadership"} {
		for _, m := range suddenModes {
			struck := w.run(m, func(m pgproxy.Message, _ int) bool {
				return m.From == pgproxy.Client && strings.HasPrefix(m.SQL, "LISTEN") && strings.Contains(m.SQL, topic)
			})
			if !struck {
				t.Errorf("%s: it did not listen to %s", m, topic)
			}
		}
	}
}

// queueStride is how many kinds the short form goes on by.
const queueStride = 4

// suddenModes need nobody beside.
var suddenModes = []mode{drop, unheard, kill}

// A kind is what messages have in common that do the same.
type kind struct {
	side      pgproxy.Side
	typ, text string
}

func kindOf(m pgproxy.Message) kind {
	return kind{m.From, m.Type, strings.Join(strings.Fields(m.SQL), " ")}
}

// ofQueue reports whether it is the job queue's own. Beside its tables it listens and notifies.
func (k kind) ofQueue() bool {
	return strings.Contains(k.text, "river_") || strings.Contains(strings.ToUpper(k.text), "LISTEN") || strings.Contains(k.text, "pg_notify") ||
		k.typ == "NotificationResponse"
}

func (k kind) String() string {
	return pgproxy.Message{From: k.side, Type: k.typ, SQL: k.text}.String()
}

// workers is a world whose keytill runs as a daemon.
type workers struct {
	*world
	mails *smtptest.Server
	hooks *hooktest.Server
}

func newWorkers(t *testing.T) *workers {
	w := &workers{world: newWorldOf(t, 10), mails: smtptest.Start()}
	w.hooks = hooktest.StartAt(hooktest.NewSecret(), w.shop.Now)
	t.Cleanup(w.mails.Close)
	t.Cleanup(w.hooks.Close)
	w.fill("full", 2000)
	return w
}

// run starts a keytill, sells, waits until the buyer and the storefront know, and stops it. It reports whether it struck.
func (w *workers) run(m mode, at func(pgproxy.Message, int) bool) bool {
	w.t.Helper()
	w.rounds++
	r := &round{world: w.world, n: w.rounds, mode: m}
	w.forward(time.Minute)
	shop, err := adapter.New(w.t.Context(), adapter.Config{Pool: w.till.DB, Keyset: w.shop.Keyset, Now: w.shop.Now, Logger: discard,
		Stripe:    adapter.Stripe{APIKey: w.shop.Stripe.APIKey(), WebhookSecrets: w.shop.Stripe.Secrets(), URL: w.shop.Stripe.URL(), PerSecond: 1e5},
		Reconcile: adapter.Reconcile{Every: -1}, Mail: adapter.Mail{URL: w.mails.URL(), From: "Shop <shop@example.com>"},
		Hook: adapter.Hook{URL: w.hooks.URL(), Secrets: []string{w.hooks.Secret()}}})
	w.shop.Must(err)
	front := httptest.NewServer(shop.Handler())
	defer front.Close()

	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	w.trouble.arm(at, r.strike)
	stopped := make(chan error, 1)
	go func() { stopped <- supervise(ctx, shop) }()
	mails := w.mails.Count()
	r.comes()
	for try := 1; ; try++ {
		err := r.post(ctx, front.URL+"/webhooks/stripe", r.posted[0])
		if err == nil {
			break
		}
		if try == retries {
			w.t.Fatalf("the event is not taken: %v", err)
		}
	}
	w.awaitTold(r)
	// What is said only now and then may be still to come.
	for wait := time.Now().Add(lingers); m != "nothing happens" && !w.trouble.hasStruck() && time.Now().Before(wait); time.Sleep(5 * time.Millisecond) {
		w.forward(5 * time.Millisecond)
	}
	stop()
	if err := <-stopped; err != nil {
		w.t.Errorf("keytill ended with: %v", err)
	}
	struck := w.trouble.disarm()
	r.quiet()
	if n := w.mails.Count() - mails; n < 1 {
		w.t.Errorf("%d mails were taken", n)
	}
	r.wantDone()
	r.wantUnits(r.orders[0], units(1, fulfillment.UnitFulfilled))
	r.wantTold(r.orders[0], "email keys.ready", "hook fulfillment.completed")
	r.judge("in the end", 0)
	if w.t.Failed() {
		w.t.Fatalf("round %d: %s at %v", r.n, m, struck)
	}
	return struck != nil
}

const (
	// lingers is how long a keytill that has done all its work is watched for a message that it says only now and then.
	lingers = time.Second

	// rescuedAfter is how long a job may stand still before it is taken to be lost with the answer that gave it out. The job
	// queue takes minutes for that, so as to be sure.
	rescuedAfter = time.Second
)

// supervise runs a keytill, and starts it again if it could not start.
func supervise(ctx context.Context, shop *adapter.Shop) error {
	var failures []error
	for range retries {
		err := shop.Run(ctx)
		if ctx.Err() != nil || err == nil {
			return err
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// awaitTold waits until all that the round's order leads to is sent.
func (w *workers) awaitTold(r *round) {
	w.t.Helper()
	const patience = 30 * time.Second
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		w.forward(5 * time.Millisecond)
		sent := collect[int64](w.world, `SELECT count(*) FROM keytill.deliveries WHERE order_id = $1 AND state = 'sent'`, r.orders[0])[0]
		if sent == 2 {
			return
		}
		waited := time.Since(began)
		if waited > patience {
			w.trouble.mu.Lock()
			defer w.trouble.mu.Unlock()
			w.t.Fatalf("round %d, %s at %v: after %s %s", r.n, r.mode, w.trouble.struck, waited, w.situation())
		}
		if waited > rescuedAfter {
			w.rescue()
		}
	}
}

// rescue does what the job queue does by itself minutes after a job was lost with the process, or the answer, that had it;
// and has what is to be tried again tried at once.
func (w *workers) rescue() {
	w.t.Helper()
	_, err := w.shop.DB.Exec(w.t.Context(), `
UPDATE keytill.river_job SET state = 'available', scheduled_at = attempted_at
 WHERE state IN ('retryable', 'scheduled') OR state = 'running' AND attempted_at < $1`, w.shop.Now().Add(-rescuedAfter))
	w.shop.Must(err)
}

func (w *workers) situation() string {
	w.t.Helper()
	return fmt.Sprint(collect[string](w.world, `
SELECT format('job %s %s is %s, scheduled at %s, attempted at %s: %s', id, kind, state, scheduled_at, attempted_at, errors[cardinality(errors)]) FROM keytill.river_job WHERE state <> 'completed'`), w.shop.Now(),
		collect[string](w.world, `SELECT format('delivery %s over %s is %s: %s', delivery_id, channel, state, last_error) FROM keytill.deliveries WHERE state <> 'sent'`))
}

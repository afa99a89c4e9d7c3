package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/smtptest"
)

// A mailtown is a town with a mail server and a storefront that listens.
type mailtown struct {
	*town
	mails *smtptest.Server
	hears *hooktest.Server
	over  []func(*adapter.Config) // changes of every keytill's configuration
}

func newMailtown(t *testing.T, change ...func(*adapter.Config)) *mailtown {
	p := &mailtown{town: newTown(t), mails: smtptest.Start(), hears: hooktest.Start(hooktest.NewSecret()), over: change}
	t.Cleanup(func() {
		p.mails.Close()
		p.hears.Close()
	})
	return p
}

// launch starts a keytill that mails and tells.
func (p *mailtown) launch() *life {
	p.t.Helper()
	l := newLife(p.clock.now())
	config, err := p.config(l, p.stripe.URL())
	p.must(err)
	wire, err := newWire(p.mails.Addr(), &l.cutter)
	p.must(err)
	l.wires = append(l.wires, wire)
	config.Mail = adapter.Mail{URL: "smtp://" + wire.addr(), From: mailFrom}
	config.Hook = adapter.Hook{URL: p.hears.URL(), Secrets: []string{p.hears.Secret()}}
	for _, c := range p.over {
		c(&config)
	}
	p.must(l.launch(p.ctx, config))
	p.t.Cleanup(func() {
		select {
		case <-l.ended:
		default:
			if err := l.stop(); err != nil {
				p.t.Errorf("stop keytill: %v", err)
			}
		}
	})
	p.life = l
	return l
}

// buy sells one unit of a price and waits until keytill has settled it.
func (p *mailtown) buy(session, price string) {
	p.t.Helper()
	p.sell(session, price+"*1")
	_, err := p.life.shop.Settle(p.ctx, session)
	p.must(err)
}

// eventually waits for a condition.
func (p *mailtown) eventually(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("not within 20 s: %s\n%s", what, p.situation())
		}
		p.must(p.promoteJobs(p.ctx))
	}
}

// row reads the newest delivery of an order over a channel.
func (p *mailtown) row(order string, channel fulfillment.Channel) (state string, attempts int, answer, problem string) {
	p.t.Helper()
	p.must(p.db.QueryRow(p.ctx, `SELECT state, attempts, answer, last_error FROM keytill.deliveries
 WHERE order_id = $1 AND channel = $2 ORDER BY delivery_id DESC LIMIT 1`, order, channel).Scan(&state, &attempts, &answer, &problem))
	return state, attempts, answer, problem
}

const mailtownBuyer = "buyer@example.com"

// The line drops after the message was sent, once with it and once without: the same message goes out again, with the
// same id, and the row tells that it may be there twice.
func TestALineThatDropsAfterTheMessage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*smtptest.Server){"kept": (*smtptest.Server).LoseAnswer, "lost": (*smtptest.Server).DropAfterData} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMailtown(t)
			p.launch()
			p.stock(p.life.shop, "game", 2, 1, "price_game")
			fault(p.mails)
			p.buy("cs_1", "price_game")
			p.eventually("a try has failed", func() bool { _, _, _, problem := p.row("cs_1", "email"); return problem != "" })
			if state, _, _, problem := p.row("cs_1", "email"); state != "pending" || !strings.Contains(problem, "perhaps delivered") {
				t.Errorf("the row is %s, %q", state, problem)
			}
			p.mails.Up()
			p.clock.forward(time.Hour)
			p.eventually("the mail is sent", func() bool { state, _, _, _ := p.row("cs_1", "email"); return state == "sent" })
			ids := make(map[string]bool)
			for _, m := range p.mails.MessagesTo(mailtownBuyer) {
				ids[m.Header.Get("Message-Id")] = true
				if !strings.Contains(m.Text, "game-0001") || strings.Contains(m.Text, "game-0002") {
					t.Errorf("a message holds other keys than the order's:\n%s", m.Text)
				}
			}
			if len(ids) != 1 {
				t.Errorf("the messages have the ids %v", ids)
			}
			if _, attempts, answer, problem := p.row("cs_1", "email"); attempts < 2 || answer == "" || problem == "" {
				t.Errorf("the row tells of %d tries, %q, %q", attempts, answer, problem)
			}
			p.hold()
		})
	}
}

// A refused address is given up at once, one that is put off is tried again, and each is told apart by its own row.
func TestRefusedAndDeferredAddresses(t *testing.T) {
	t.Parallel()
	p := newMailtown(t)
	p.launch()
	p.stock(p.life.shop, "game", 2, 1, "price_game")
	p.mails.Refuse(550)
	p.buy("cs_1", "price_game")
	p.eventually("the refused mail is given up", func() bool { state, _, _, _ := p.row("cs_1", "email"); return state == "failed" })
	p.eventually("the storefront hears of it", func() bool { return p.hears.Count("finding.opened") == 1 })
	p.mails.Up()
	p.mails.Refuse(451)
	p.buy("cs_2", "price_game")
	p.eventually("the deferred mail is tried", func() bool { _, attempts, _, _ := p.row("cs_2", "email"); return attempts > 0 })
	if state, _, _, _ := p.row("cs_2", "email"); state != "pending" {
		t.Errorf("the deferred mail is %s", state)
	}
	p.mails.Up()
	p.clock.forward(time.Hour)
	p.eventually("it is sent", func() bool { state, _, _, _ := p.row("cs_2", "email"); return state == "sent" })
	findings, err := fulfillment.Findings(p.ctx, p.db, "default")
	p.must(err)
	if len(findings) != 1 || findings[0].Kind != fulfillment.Undeliverable || strings.Contains(findings[0].Detail, "@") {
		t.Errorf("the findings are %+v", findings)
	}
}

// killAt ends a keytill's connections before a statement is sent for the first time, alone or in a batch.
type killAt struct {
	text string
	life atomic.Pointer[life]
	done atomic.Bool
}

func (k *killAt) look(sql string) {
	if strings.Contains(sql, k.text) && k.life.Load() != nil && k.done.CompareAndSwap(false, true) {
		k.life.Load().kill()
	}
}

// TraceQueryStart kills before the statement is sent.
func (k *killAt) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	k.look(data.SQL)
	return ctx
}

// TraceQueryEnd does nothing.
func (k *killAt) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart kills before the batch that holds the statement is sent.
func (k *killAt) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		k.look(q.SQL)
	}
	return ctx
}

// TraceBatchQuery does nothing.
func (k *killAt) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (k *killAt) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// Killed between every two steps of a delivery: at least one message comes, never another key, and the row tells the
// truth.
func TestKilledBetweenTheStepsOfADelivery(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]struct {
		sql   string // killed before it; empty: killed while the mail server holds the message
		fault func(*smtptest.Server)
		mails int
	}{
		"before the try is counted":           {sql: "SET attempts = attempts + 1", mails: 1},
		"while the server reads the message":  {fault: (*smtptest.Server).DropAfterData, mails: 1},
		"after the server took it":            {fault: (*smtptest.Server).LoseAnswer, mails: 2},
		"before the row says that it is sent": {sql: "SET state = $3, answer = $4", mails: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMailtown(t)
			kill := &killAt{text: step.sql}
			if step.sql != "" {
				p.tracer = kill
			}
			l := p.launch()
			p.stock(l.shop, "game", 2, 1, "price_game")
			kill.life.Store(l)
			if step.fault != nil {
				step.fault(p.mails)
			}
			p.sell("cs_1", "price_game*1")
			_, _ = l.shop.Settle(p.ctx, "cs_1") // it may be killed before it has heard of its own commit
			if step.fault != nil {
				p.eventually("the mail is tried", func() bool { return p.mails.Connections() > 0 })
				time.Sleep(50 * time.Millisecond)
				l.kill()
			} else {
				p.eventually("keytill is killed", kill.done.Load)
			}
			p.mails.Up()
			p.tracer = nil
			p.clock.forward(time.Hour)
			p.launch()
			p.must(p.rescueJobs(p.ctx))
			p.eventually("the mail is sent", func() bool { state, _, _, _ := p.row("cs_1", "email"); return state == "sent" })
			got := p.mails.MessagesTo(mailtownBuyer)
			if len(got) < 1 || len(got) > step.mails {
				t.Errorf("%d messages came", len(got))
			}
			for _, m := range got {
				if !strings.Contains(m.Text, "game-0001") || m.Header.Get("Message-Id") != got[0].Header.Get("Message-Id") {
					t.Errorf("a message is not the order's:\n%s", m.Raw)
				}
			}
			if _, attempts, _, _ := p.row("cs_1", "email"); attempts < len(got) {
				t.Errorf("%d messages came, and the row tells of %d tries", len(got), attempts)
			}
			p.hold()
		})
	}
}

// A receiver of hooks that takes ten seconds for each delays no order, no mail and no answer to Stripe.
func TestASlowReceiverDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	p := newMailtown(t)
	l := p.launch()
	p.stock(l.shop, "game", 30, 1, "price_game")
	p.hears.Slow(10 * time.Second)
	begin := time.Now()
	for n := range 30 {
		id := fmt.Sprintf("cs_%d", n)
		p.sell(id, "price_game*1")
		p.must(p.tell(l, "checkout.session.completed", id))
	}
	answered := time.Since(begin)
	p.eventually("all mails have come", func() bool { return p.mails.Count() == 30 })
	if took := time.Since(begin); answered > 8*time.Second || took > 9*time.Second {
		t.Errorf("the events were answered after %s, the mails came after %s", answered, took)
	}
	p.hears.Slow(0)
}

// The notices of an order come in order, whatever the receiver does to the first, and other orders do not wait.
func TestHooksOfAnOrderComeInOrder(t *testing.T) {
	t.Parallel()
	p := newMailtown(t)
	l := p.launch()
	p.stock(l.shop, "game", 3, 1, "price_game")
	p.hears.Fail(3, 500) // three tries within one
	p.buy("cs_1", "price_game")
	p.eventually("the first try has failed", func() bool { _, attempts, _, problem := p.row("cs_1", "hook"); return attempts == 1 && problem != "" })
	p.must(l.shop.Service().RevokeKey(p.ctx, "default", fulfillment.UnitRef{Order: "cs_1", Unit: 1}, fulfillment.Person{Name: "jane", Reason: "test"}))
	p.buy("cs_2", "price_game")
	p.eventually("the other order's notice comes", func() bool { return p.hears.Count("fulfillment.completed") >= 1 })
	p.clock.forward(time.Minute)
	p.eventually("all notices have come", func() bool { return p.hears.Count("") == 3 })
	var types []string
	for _, n := range p.hears.Notices() {
		if strings.Contains(string(n.Data), `"cs_1"`) {
			types = append(types, n.Type)
		}
	}
	if fmt.Sprint(types) != "[fulfillment.completed key.revoked]" {
		t.Errorf("the order's notices came as %v", types)
	}
}

var errNotNow = errors.New("not now")

// The storefront's function writes in the transaction of the allocation: what it refuses is not allocated, and what it
// writes is there exactly with it.
func TestTheStorefrontsFunctionInTheTransaction(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	var told atomic.Int64
	p := newMailtown(t, func(c *adapter.Config) {
		c.Hooks.InTx = func(ctx context.Context, tx pgx.Tx, change adapter.Change) error {
			for _, u := range change.Units {
				if _, err := tx.Exec(ctx, `INSERT INTO licences VALUES ($1, $2, $3, $4)`, change.Order, u.Unit, u.To, u.KeyID); err != nil {
					return err
				}
			}
			if refuse.Load() {
				return errNotNow
			}
			return nil
		}
		c.Hooks.Told = func(context.Context, adapter.Notice) error { told.Add(1); return nil }
	})
	_, err := p.db.Exec(p.ctx, `CREATE TABLE licences (order_id text, unit int, state text, key_id bigint)`)
	p.must(err)
	l := p.launch()
	pool := p.stock(l.shop, "game", 1, 1, "price_game")

	refuse.Store(true)
	p.sell("cs_1", "price_game*1")
	if _, err := l.shop.Settle(p.ctx, "cs_1"); !errors.Is(err, errNotNow) {
		t.Fatalf("settle: %v", err)
	}
	p.wantLicences()
	refuse.Store(false)
	_, err = l.shop.Settle(p.ctx, "cs_1")
	p.must(err)
	p.buy("cs_2", "price_game") // waits
	p.wantLicences("cs_1 fulfilled", "cs_2 waiting")

	// A command in another process leaves units alone, and says so.
	if err := p.elsewhere().RevokeKey(p.ctx, "default", fulfillment.UnitRef{Order: "cs_1", Unit: 1}, fulfillment.Person{Name: "jane", Reason: "test"}); !errors.Is(err, fulfillment.ErrElsewhere) {
		t.Errorf("revoke in another process: %v", err)
	}
	p.restockWith(p.elsewhere(), pool)
	p.eventually("the waiting unit is served by the storefront's process", func() bool { return len(p.licences()) == 3 })
	p.wantLicences("cs_1 fulfilled", "cs_2 fulfilled", "cs_2 waiting")
	p.must(l.shop.Service().RevokeKey(p.ctx, "default", fulfillment.UnitRef{Order: "cs_1", Unit: 1}, fulfillment.Person{Name: "jane", Reason: "test"}))
	p.wantLicences("cs_1 fulfilled", "cs_1 revoked", "cs_2 fulfilled", "cs_2 waiting")
	p.eventually("the storefront was told after the commits", func() bool { return told.Load() >= 4 })
	p.hold()
}

package demo

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/migrations"
)

// A Check is one promise, and what breaks it.
type Check struct {
	Promise  string   `json:"promise"`
	Problems []string `json:"problems"`
}

// mostProblems is how many problems of a kind are said; the rest is like them.
const mostProblems = 5

// check holds the promises against the database, and what went out against what the database says.
func (s *story) check(ctx context.Context, r *Report) error {
	orders, err := s.loadOrders(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		promise string
		find    func(context.Context, []sold) ([]string, error)
	}{
		{"keys, units, counts and ledger agree (as `keytill doctor` checks)", s.checkDatabase},
		{"everyone who paid has a key for each unit, or waits for stock", s.checkUnits},
		{"no key went out twice, by its decrypted text", s.checkTexts},
		{"every mail holds the keys of its order and no others", s.checkMails},
		{"every hook that was sent has arrived, signed", s.checkHooks},
		{"every webhook is recorded once and settled", s.checkEvents},
		{"the refunded key is revoked, and old events do not bring it back", s.checkRefund},
		{"no key stands in the clear in any table", s.checkSecrets},
	} {
		problems, err := c.find(ctx, orders)
		if err != nil {
			return fmt.Errorf("check that %s: %w", c.promise, err)
		}
		r.Checks = append(r.Checks, Check{c.promise, append([]string{}, problems[:min(len(problems), mostProblems)]...)})
	}
	return nil
}

// sold is a purchase and what the database has of it.
type sold struct {
	purchase
	order fulfillment.Order
	known bool
	texts []string // of its keys, those that were revoked too
}

// loadOrders reads every order that was bought, and decrypts its keys.
func (s *story) loadOrders(ctx context.Context) ([]sold, error) {
	orders := make([]sold, len(s.bought))
	var ids []int64
	for i, p := range s.bought {
		orders[i].purchase = p
		o, err := fulfillment.LoadOrder(ctx, s.db, inventory.DefaultMerchant, p.session)
		if errors.Is(err, fulfillment.ErrNoOrder) {
			continue // checkUnits says that it is missing
		}
		if err != nil {
			return nil, err
		}
		orders[i].order, orders[i].known = o, true
		ids = append(ids, o.KeyIDs(fulfillment.UnitFulfilled, fulfillment.UnitRevoked)...)
	}
	texts, err := s.keyset.Texts(ctx, s.db, inventory.DefaultMerchant, ids)
	if err != nil {
		return nil, err
	}
	for i := range orders {
		for _, id := range orders[i].order.KeyIDs(fulfillment.UnitFulfilled, fulfillment.UnitRevoked) {
			orders[i].texts = append(orders[i].texts, texts[id])
		}
	}
	return orders, nil
}

func (s *story) checkDatabase(ctx context.Context, _ []sold) ([]string, error) {
	return fulfillment.Check(ctx, s.db, s.clock.Now(), 0)
}

func (s *story) checkUnits(_ context.Context, orders []sold) (problems []string, err error) {
	waits := 0
	for _, o := range orders {
		units := o.order.Units()
		has := units[fulfillment.UnitFulfilled] + units[fulfillment.UnitWaiting]
		if o.session == s.refunded.session {
			has = units[fulfillment.UnitRevoked]
		}
		switch {
		case !o.known:
			problems = append(problems, fmt.Sprintf("%s was paid, and there is no such order", o.session))
		case has != o.quantity || len(o.texts)+units[fulfillment.UnitWaiting] != o.quantity:
			problems = append(problems, fmt.Sprintf("%s bought %d, and has %d keys and %d units that wait", o.session, o.quantity,
				len(o.texts), units[fulfillment.UnitWaiting]))
		}
		waits += units[fulfillment.UnitWaiting]
	}
	// What was bought less what there is: nobody waits who need not.
	due := -len(s.shelf)
	for _, p := range s.bought {
		due += p.quantity
	}
	if waits != max(due, 0) {
		problems = append(problems, fmt.Sprintf("%d units wait, and it should be %d", waits, max(due, 0)))
	}
	return problems, nil
}

func (s *story) checkTexts(_ context.Context, orders []sold) (problems []string, err error) {
	shelf, owner := make(map[string]bool), make(map[string]string)
	for _, text := range s.shelf {
		shelf[text] = true
	}
	for _, o := range orders {
		for _, text := range o.texts {
			if other, twice := owner[text]; twice {
				problems = append(problems, fmt.Sprintf("%s and %s have the same key", other, o.session))
			}
			if !shelf[text] {
				problems = append(problems, fmt.Sprintf("%s has a key that was never imported", o.session))
			}
			owner[text] = o.session
		}
	}
	return problems, nil
}

func (s *story) checkMails(_ context.Context, orders []sold) (problems []string, err error) {
	for _, o := range orders {
		var mailed []string
		for _, m := range s.mail.MessagesTo(o.email) {
			mailed = append(mailed, s.keys.in(m.Text)...)
		}
		// An order that was served in two parts had two mails, the second with all of its keys.
		slices.Sort(mailed)
		has := slices.Sorted(slices.Values(o.texts))
		if !slices.Equal(slices.Compact(mailed), has) {
			problems = append(problems, fmt.Sprintf("the mails of %s hold %d keys, or others, and the order has %d", o.session,
				len(mailed), len(has)))
		}
	}
	return problems, nil
}

func (s *story) checkHooks(ctx context.Context, _ []sold) (problems []string, err error) {
	rows, err := s.db.Query(ctx, `
SELECT format('msg_%s_%s', merchant_id, delivery_id), type, state FROM keytill.deliveries WHERE merchant_id = $1 AND channel = 'hook'`,
		inventory.DefaultMerchant)
	if err != nil {
		return nil, err
	}
	arrived := make(map[string]string)
	for _, n := range s.hooks.Notices() {
		arrived[n.ID] = n.Type
	}
	written := 0
	var id, kind, state string
	_, err = pgx.ForEachRow(rows, []any{&id, &kind, &state}, func() error {
		written++
		if state != "sent" || arrived[id] != kind {
			problems = append(problems, fmt.Sprintf("hook %s (%s) is %s, and arrived as %q", id, kind, state, arrived[id]))
		}
		return nil
	})
	if len(arrived) != written {
		problems = append(problems, fmt.Sprintf("%d hooks arrived of %d", len(arrived), written))
	}
	if n := s.hooks.Refused(); n > 0 {
		problems = append(problems, fmt.Sprintf("the storefront refused %d hooks as not authentic", n))
	}
	return problems, err
}

func (s *story) checkEvents(ctx context.Context, _ []sold) (problems []string, err error) {
	var r Report
	if err := s.readEvents(ctx, &r); err != nil {
		return nil, err
	}
	events, _ := s.postman.sent()
	if r.Events.Recorded != events || r.Events.Done != events {
		problems = append(problems, fmt.Sprintf("%d events were sent, %d are recorded, %d settled", events, r.Events.Recorded, r.Events.Done))
	}
	return problems, nil
}

func (s *story) checkRefund(ctx context.Context, orders []sold) (problems []string, err error) {
	for _, o := range orders {
		if o.session != s.refunded.session {
			continue
		}
		if n := o.order.Units()[fulfillment.UnitRevoked]; n != 1 || o.order.Payment != fulfillment.Refunded {
			problems = append(problems, fmt.Sprintf("%s is %s, with %d units revoked", o.session, o.order.Payment, n))
		}
	}
	if s.before != s.after {
		problems = append(problems, "events of three days ago changed something")
	}
	return problems, nil
}

// checkSecrets looks for the group that all keys of this run begin with, as text and as bytes, in every row of every
// table, the job queue's too.
func (s *story) checkSecrets(ctx context.Context, _ []sold) (problems []string, err error) {
	rows, err := s.db.Query(ctx, `
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') ORDER BY c.relname`, migrations.Schema)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		var n int
		err := s.db.QueryRow(ctx, `SELECT count(*) FROM `+pgx.Identifier{migrations.Schema, table}.Sanitize()+` AS r
 WHERE strpos(r::text, $1) > 0 OR strpos(r::text, $2) > 0`, s.keys.tag, hex.EncodeToString([]byte(s.keys.tag))).Scan(&n)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			problems = append(problems, fmt.Sprintf("%d rows of %s hold a key in the clear", n, table))
		}
	}
	return problems, nil
}

package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A Report says what became of it all. States and numbers are the database's; what arrived is what those say who
// received it.
type Report struct {
	Asked      Asked        `json:"asked"`
	PostgreSQL string       `json:"postgresql"`
	Keys       []Count      `json:"keys"`   // by state, from the ledger
	Units      []Count      `json:"units"`  // by state
	Orders     []Count      `json:"orders"` // by state of the payment
	Waiting    int          `json:"waiting"`
	Events     Events       `json:"events"`
	Stripe     StripeCalls  `json:"stripe"`
	Deliveries []Deliveries `json:"deliveries"`
	Sample     Sample       `json:"sample"`
	Rush       Rush         `json:"rush"`
	Checks     []Check      `json:"checks"`
	OK         bool         `json:"ok"`
	TookMS     int64        `json:"took_ms"`
	Open       *Open        `json:"open,omitempty"` // nil where nothing stays open
}

// Open is where the shop stays open, and how to get in.
type Open struct {
	Shop      string `json:"shop"`
	Console   string `json:"console"`
	Token     string `json:"token"` // of the console and the API
	API       string `json:"api"`
	Metrics   string `json:"metrics"`
	Stripe    string `json:"stripe"`
	StripeKey string `json:"stripe_key"`
}

// Asked is what the demo was told to do.
type Asked struct {
	Orders int `json:"orders"`
	Keys   int `json:"keys"`
}

// Count is how many there are in a state.
type Count struct {
	State string `json:"state"`
	N     int64  `json:"n"`
}

// Events are Stripe's webhooks as the inbox has them, and how many requests brought them.
type Events struct {
	Posted   int `json:"posted"`   // requests to the webhook
	Recorded int `json:"recorded"` // rows in the inbox, one an event
	Done     int `json:"done"`
}

// StripeCalls are what keytill asked Stripe for, as Stripe counted.
type StripeCalls struct {
	Total int `json:"total"`
	Rush  int `json:"rush"` // between the first webhook of the rush and its last key
}

// Deliveries are of one channel and type: rows that say so, and how many arrived.
type Deliveries struct {
	Channel string `json:"channel"`
	Type    string `json:"type"`
	Sent    int    `json:"sent"`    // by the database
	Arrived int    `json:"arrived"` // by the receiver
}

// Rush is the time of the orders that came at once: from the first webhook received to the last event settled.
type Rush struct {
	Orders    int     `json:"orders"`
	MS        int64   `json:"ms"`
	PerSecond float64 `json:"per_second"`
}

// span is a stretch of time by the database, and the calls that Stripe had in it.
type span struct {
	orders   int
	from, to time.Time
	calls    int
}

// readSpan reads how long it took from the first webhook received to the last one settled.
func (s *story) readSpan() (span, error) {
	sp := span{calls: s.stripe.Calls("/v1/")}
	err := s.db.QueryRow(s.ctx, `
SELECT min(received_at), max(done_at), (SELECT count(*) FROM keytill.orders WHERE merchant_id = $1)
  FROM keytill.events WHERE merchant_id = $1`, inventory.DefaultMerchant).Scan(&sp.from, &sp.to, &sp.orders)
	if err != nil {
		return sp, fmt.Errorf("read how long it took: %w", err)
	}
	return sp, nil
}

// census is what must not change when nothing has.
type census struct {
	events, movements, deliveries int
	units                         string // a hash of every unit's state and key
}

func (s *story) takeCensus() (c census, err error) {
	err = s.db.QueryRow(s.ctx, `
SELECT (SELECT count(*) FROM keytill.events WHERE merchant_id = $1),
       (SELECT count(*) FROM keytill.movements WHERE merchant_id = $1),
       (SELECT count(*) FROM keytill.deliveries WHERE merchant_id = $1),
       (SELECT md5(coalesce(string_agg(concat_ws(' ', order_id, line_id, unit, state, key_id), E'\n' ORDER BY order_id, line_id, unit), ''))
          FROM keytill.fulfilments WHERE merchant_id = $1)`, inventory.DefaultMerchant).
		Scan(&c.events, &c.movements, &c.deliveries, &c.units)
	if err != nil {
		return c, fmt.Errorf("count what there is: %w", err)
	}
	return c, nil
}

func (s *story) report() (Report, error) {
	r := Report{Asked: Asked{s.Orders, s.Keys}, PostgreSQL: s.postgres, OK: true}
	_, r.Events.Posted = s.postman.sent()
	r.Stripe = StripeCalls{Total: s.stripe.Calls("/v1/"), Rush: s.rushed.calls}
	took := s.rushed.to.Sub(s.rushed.from)
	r.Rush = Rush{Orders: s.rushed.orders, MS: took.Milliseconds(), PerSecond: float64(s.rushed.orders) / took.Seconds()}
	for _, read := range []func(context.Context, *Report) error{s.readCounts, s.readEvents, s.readDeliveries, s.readSample, s.check} {
		if err := read(s.ctx, &r); err != nil {
			return r, err
		}
	}
	for _, c := range r.Checks {
		r.OK = r.OK && len(c.Problems) == 0
	}
	r.TookMS = time.Since(s.began).Milliseconds()
	return r, nil
}

func (s *story) readCounts(ctx context.Context, r *Report) error {
	stock, err := inventory.Stock(ctx, s.db, inventory.DefaultMerchant, s.pool.ID)
	if err != nil {
		return err
	}
	for _, state := range inventory.States {
		if n := stock[s.pool.ID][state]; n > 0 || state == inventory.Available {
			r.Keys = append(r.Keys, Count{string(state), n})
		}
	}
	if r.Units, err = s.countBy(ctx, `
SELECT state, count(*) FROM keytill.fulfilments WHERE merchant_id = $1
 GROUP BY state ORDER BY state`); err != nil {
		return err
	}
	for _, c := range r.Units {
		if c.State == string(fulfillment.UnitWaiting) {
			r.Waiting = int(c.N)
		}
	}
	r.Orders, err = s.countBy(ctx, `
SELECT payment, count(*) FROM keytill.orders WHERE merchant_id = $1
 GROUP BY payment ORDER BY payment`)
	return err
}

func (s *story) countBy(ctx context.Context, query string) ([]Count, error) {
	rows, err := s.db.Query(ctx, query, inventory.DefaultMerchant)
	if err != nil {
		return nil, fmt.Errorf("count by state: %w", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Count])
	if err != nil {
		return nil, fmt.Errorf("count by state: %w", err)
	}
	return counts, nil
}

func (s *story) readEvents(ctx context.Context, r *Report) error {
	err := s.db.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'done') FROM keytill.events WHERE merchant_id = $1 AND NOT swept`,
		inventory.DefaultMerchant).Scan(&r.Events.Recorded, &r.Events.Done)
	if err != nil {
		return fmt.Errorf("count the events: %w", err)
	}
	return nil
}

func (s *story) readDeliveries(ctx context.Context, r *Report) error {
	rows, err := s.db.Query(ctx, `
SELECT channel, type, count(*) FILTER (WHERE state = 'sent') FROM keytill.deliveries WHERE merchant_id = $1
 GROUP BY channel, type ORDER BY channel, type`, inventory.DefaultMerchant)
	if err != nil {
		return fmt.Errorf("count the deliveries: %w", err)
	}
	r.Deliveries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Deliveries, err error) {
		err = row.Scan(&d.Channel, &d.Type, &d.Sent)
		return d, err
	})
	if err != nil {
		return fmt.Errorf("count the deliveries: %w", err)
	}
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		if d.Channel == string(fulfillment.ChannelEmail) {
			d.Arrived = s.mail.Count()
		} else {
			d.Arrived = s.hooks.Count(d.Type)
		}
	}
	return nil
}

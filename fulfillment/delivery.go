package fulfillment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// Channel is a way to tell somebody what became of an order.
type Channel string

const (
	ChannelEmail   Channel = "email"   // the buyer
	ChannelHook    Channel = "hook"    // the storefront, over signed HTTP
	ChannelProcess Channel = "process" // the storefront, in its own process
)

// NoticeType is what a delivery tells.
type NoticeType string

const (
	FulfillmentCompleted NoticeType = "fulfillment.completed" // every unit that is due has its key
	FulfillmentWaiting   NoticeType = "fulfillment.waiting"   // units wait for stock
	FulfillmentFailed    NoticeType = "fulfillment.failed"    // units got no key, and their pool does not wait
	KeySuspended         NoticeType = "key.suspended"
	KeyRevoked           NoticeType = "key.revoked"
	KeyRestored          NoticeType = "key.restored"
	KeyReplaced          NoticeType = "key.replaced"

	StockLow NoticeType = "stock.low" // a pool has fallen to its mark
	StockOut NoticeType = "stock.out" // a pool is empty

	FindingOpened NoticeType = "finding.opened" // a person must look at something

	// KeysReady is the buyer's mail: units of the order have got their keys.
	KeysReady NoticeType = "keys.ready"
)

// A NoticeUnit is a unit that a notice is about. It holds no key.
type NoticeUnit struct {
	Line string `json:"line"`
	Unit int    `json:"unit"`
	SKU  string `json:"sku"`
}

// A notice is one thing to tell, mostly about an order; it becomes a delivery for each channel.
type notice struct {
	kind    NoticeType
	units   []NoticeUnit
	after   time.Time // not before
	subject Subject
}

// A Subject is what a notice is about beside an order.
type Subject struct {
	Stock   *StockNotice   `json:"stock,omitempty"`
	Finding *FindingNotice `json:"finding,omitempty"`
}

// channelNames are the channels that a merchant's daemon serves, as the database has them.
type channelNames []string

func (c channelNames) has(channel Channel) bool { return slices.Contains(c, string(channel)) }

// storefront are those over which the storefront hears of everything.
func (c channelNames) storefront() []Channel {
	return slices.DeleteFunc([]Channel{ChannelHook, ChannelProcess}, func(channel Channel) bool { return !c.has(channel) })
}

const insertDeliveries = `
INSERT INTO keytill.deliveries (merchant_id, order_id, channel, type, recipient, units, send_after, subject, created_at)
SELECT $1, nullif(order_id, ''), channel, type, recipient, coalesce(units, '[]'), send_after, subject, $2
  FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::timestamptz[], $9::jsonb[])
       AS d (order_id, channel, type, recipient, units, send_after, subject)
RETURNING delivery_id, channel, send_after, coalesce(order_id, '')`

// deliveries are rows to insert, by column.
type deliveries struct {
	orders, channels, types, recipients []string
	units                               [][]NoticeUnit
	after                               []time.Time
	subjects                            []Subject
}

func (d *deliveries) add(order string, channel Channel, n notice, recipient string) {
	d.orders, d.channels, d.types = append(d.orders, order), append(d.channels, string(channel)), append(d.types, string(n.kind))
	d.recipients, d.units, d.after = append(d.recipients, recipient), append(d.units, n.units), append(d.after, n.after)
	d.subjects = append(d.subjects, n.subject)
}

// insert writes the deliveries and returns their jobs. Nothing is sent before the commit, and what the commit loses is
// never sent.
func (d *deliveries) insert(ctx context.Context, tx pgx.Tx, merchant string, at time.Time) ([]river.InsertManyParams, error) {
	if len(d.orders) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, insertDeliveries, merchant, at, d.orders, d.channels, d.types, d.recipients, d.units, d.after, d.subjects)
	if err != nil {
		return nil, fmt.Errorf("write the deliveries: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (river.InsertManyParams, error) {
		var (
			job   = DeliverJob{Merchant: merchant}
			after time.Time
		)
		if err := row.Scan(&job.Delivery, &job.Channel, &after, &job.Order); err != nil {
			return river.InsertManyParams{}, err
		}
		opts := &river.InsertOpts{Queue: queueOf(job.Channel), MaxAttempts: deliverAttempts}
		if after.After(at) {
			opts.ScheduledAt = after
		}
		return river.InsertManyParams{Args: job, InsertOpts: opts}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("write the deliveries: %w", err)
	}
	return jobs, nil
}

// deliverAttempts is how often the queue tries where the database fails. What is sent in vain is put off instead, by the
// delivery's own rules.
const deliverAttempts = 150

func queueOf(channel Channel) string {
	switch channel {
	case ChannelEmail:
		return QueueEmail
	case ChannelHook:
		return QueueHook
	default:
		return QueueProcess
	}
}

func (a *application) serves(channel Channel) bool { return a.order.channels.has(channel) }

// writeDeliveries writes what is to be told of the changes, and the jobs that follow from them.
func (r *round) writeDeliveries(ctx context.Context, tx pgx.Tx) error {
	var (
		rows             deliveries
		waiting, watched []int64
		asks             bool
	)
	for _, a := range r.apps {
		a.addDeliveries(&rows)
		waiting, watched = append(waiting, a.plan.waitingPools()...), append(watched, a.plan.watchedPools()...)
		asks = asks || a.asks()
	}
	jobs, err := rows.insert(ctx, tx, r.lead.merchant, r.lead.at)
	if err != nil {
		return err
	}
	for _, pool := range unique(waiting) {
		jobs = append(jobs, river.InsertManyParams{Args: ServeJob{Merchant: r.lead.merchant, Pool: pool}})
	}
	for _, pool := range unique(watched) {
		jobs = append(jobs, river.InsertManyParams{Args: StockLevelJob{Merchant: r.lead.merchant, Pool: pool}})
	}
	if err := insertJobs(ctx, r.jobs, tx, jobs); err != nil {
		return err
	}
	for _, a := range r.apps {
		if err := a.reviveRestored(ctx, tx); err != nil {
			return err
		}
		if err := r.changed(ctx, tx, a.moved()); err != nil {
			return err
		}
	}
	if !asks {
		return nil
	}
	return r.tellFindings(ctx, tx, r.lead.merchant)
}

func unique(pools []int64) []int64 {
	slices.Sort(pools)
	return slices.Compact(pools)
}

func (a *application) addDeliveries(rows *deliveries) {
	for _, n := range a.plan.notices(a.at, a.releases()) {
		switch {
		case n.kind == KeysReady && a.serves(ChannelEmail) && a.email() != "":
			rows.add(a.order.id, ChannelEmail, n, a.email())
		case n.kind != KeysReady:
			for _, channel := range a.order.channels.storefront() {
				rows.add(a.order.id, channel, n, "")
			}
		}
	}
}

func insertJobs(ctx context.Context, jobs Jobs, tx pgx.Tx, params []river.InsertManyParams) error {
	if len(params) == 0 {
		return nil
	}
	if _, err := jobs.InsertManyTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert %d jobs: %w", len(params), err)
	}
	return nil
}

// releases are the release dates of the order's pools.
func (a *application) releases() map[int64]time.Time {
	releases := make(map[int64]time.Time)
	for _, l := range a.lines {
		if l.pool != nil && l.pool.ReleaseAt != nil {
			releases[l.pool.ID] = *l.pool.ReleaseAt
		}
	}
	return releases
}

// notices are what a plan's changes tell. What was never announced is not said to be taken away.
func (p *plan) notices(now time.Time, releases map[int64]time.Time) []notice {
	byKind := make(map[NoticeType]*notice)
	tell := func(kind NoticeType, u *unitChange) {
		if byKind[kind] == nil {
			byKind[kind] = &notice{kind: kind, after: now}
		}
		n := byKind[kind]
		n.units = append(n.units, NoticeUnit{Line: u.line, Unit: u.number, SKU: u.sku})
		if release := releases[u.pool]; release.After(n.after) {
			n.after = release
		}
	}
	for _, u := range p.changed {
		switch {
		case u.step == claim:
			tell(KeysReady, u)
		case u.step == restore:
			tell(KeyRestored, u)
		case u.step == suspend && u.state == UnitFulfilled:
			tell(KeySuspended, u)
		case u.step == revoke:
			tell(KeyRevoked, u)
		case u.next == UnitWaiting && u.state != UnitWaiting:
			tell(FulfillmentWaiting, u)
		case u.next == UnitFailed && u.state != UnitFailed:
			tell(FulfillmentFailed, u)
		}
	}
	if p.completes() {
		byKind[FulfillmentCompleted] = p.completed(now, releases)
	}
	notices := make([]notice, 0, len(byKind))
	for _, kind := range noticeOrder {
		if n := byKind[kind]; n != nil {
			notices = append(notices, *n)
		}
	}
	return notices
}

// completes reports whether the plan brings the order to where nothing is owed any more: by keys, or because what it lacked
// is no longer due.
func (p *plan) completes() bool {
	holds := p.holds()
	if holds[UnitFulfilled] == 0 || holds[UnitWaiting]+holds[UnitFailed]+holds[UnitPending] > 0 {
		return false
	}
	return slices.ContainsFunc(p.changed, func(u *unitChange) bool {
		return u.step == claim || u.state == UnitWaiting || u.state == UnitFailed || u.state == UnitPending
	})
}

// completed is the notice about all units that have their keys, when the last of them may be announced.
func (p *plan) completed(now time.Time, releases map[int64]time.Time) *notice {
	n := &notice{kind: FulfillmentCompleted, after: now}
	next := make(map[unitName]UnitState, len(p.changed))
	for _, u := range p.changed {
		next[unitName{u.line, u.number}] = u.next
	}
	for _, u := range p.units {
		state, changed := next[unitName{u.line, u.number}]
		if !changed {
			state = u.state
		}
		if state != UnitFulfilled {
			continue
		}
		n.units = append(n.units, NoticeUnit{Line: u.line, Unit: u.number, SKU: p.skus[u.pool]})
		if release := releases[u.pool]; release.After(n.after) {
			n.after = release
		}
	}
	return n
}

// noticeOrder is the order in which the notices of one settle are told.
var noticeOrder = []NoticeType{KeySuspended, KeyRevoked, KeyRestored, KeysReady, FulfillmentCompleted, FulfillmentWaiting, FulfillmentFailed}

// waitingPools are those in which the plan leaves units waiting: each is served once more after the commit, since the
// stock that would have served them may have been committed meanwhile.
func (p *plan) waitingPools() []int64 {
	var pools []int64
	for _, u := range p.changed {
		if u.next == UnitWaiting {
			pools = append(pools, u.pool)
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

const setChannels = `UPDATE keytill.merchants SET channels = $1 WHERE channels <> $1`

// ServeChannels notes in the database which channels deliveries are written for. The daemon that sends them says so when
// it starts, since whoever settles or imports, a command on another machine say, does not know.
func (s *Service) ServeChannels(ctx context.Context, channels []Channel) error {
	names := make(channelNames, len(channels), len(channels)+1)
	for i, c := range channels {
		names[i] = string(c)
	}
	if s.inTx != nil {
		names = append(names, processTx)
	}
	if _, err := s.db.Exec(ctx, setChannels, names); err != nil {
		return fmt.Errorf("note the delivery channels: %w", err)
	}
	return nil
}

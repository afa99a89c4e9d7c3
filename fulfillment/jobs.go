package fulfillment

import (
	"time"

	"github.com/riverqueue/river"
)

// Queues of the job queue, by what may delay what: a dead mail server must not delay an order, nor a slow receiver of
// hooks a mail.
const (
	QueueSettle  = "settle"
	QueueStock   = "stock"
	QueueEmail   = "email"
	QueueHook    = "hook"
	QueueProcess = "process"
)

// SettleJob settles what an event, or a person, points at.
type SettleJob struct {
	Merchant string `json:"merchant_id"`
	Event    string `json:"event_id,omitempty"` // the event to settle, or
	Ref      string `json:"ref,omitempty"`      // any id of the payment
	Retry    bool   `json:"retry,omitempty"`    // failed units are tried again
}

// Kind names the job in the queue's tables.
func (SettleJob) Kind() string { return "settle" }

// InsertOpts sets the queue and how long a failing job is kept alive.
func (SettleJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueSettle, MaxAttempts: settleAttempts}
}

// SpreadJob gives each of some events its own SettleJob. Events that came together are recorded with one such job, since
// Stripe waits for that, and for nothing that happens later.
type SpreadJob struct {
	Merchant string   `json:"merchant_id"`
	Events   []string `json:"event_ids"`
}

// Kind names the job in the queue's tables.
func (SpreadJob) Kind() string { return "spread" }

// InsertOpts sets the queue.
func (SpreadJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueSettle, MaxAttempts: settleAttempts}
}

// ServeJob serves the units that wait for a pool's stock.
type ServeJob struct {
	Merchant string `json:"merchant_id"`
	Pool     int64  `json:"pool_id"`
}

// Kind names the job in the queue's tables.
func (ServeJob) Kind() string { return "serve" }

// InsertOpts sets the queue.
func (ServeJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: settleAttempts}
}

// MappedJob settles the orders that waited for a price or product to be mapped.
type MappedJob struct {
	Merchant string `json:"merchant_id"`
	Item     string `json:"item"`
}

// Kind names the job in the queue's tables.
func (MappedJob) Kind() string { return "mapped" }

// InsertOpts sets the queue.
func (MappedJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: settleAttempts}
}

// DeliverJob sends one delivery.
type DeliverJob struct {
	Merchant string  `json:"merchant_id"`
	Delivery int64   `json:"delivery_id"`
	Order    string  `json:"order_id,omitempty"` // what the delivery's row says too: known here, it is all read at once
	Channel  Channel `json:"channel"`
}

// Kind names the job in the queue's tables.
func (DeliverJob) Kind() string { return "deliver" }

// settleAttempts is how often the job queue tries before it gives a job up. The pick-up of events finds what was given
// up, so this is not the end of an event.
const settleAttempts = 20

// RetryDelay is the pause after the n-th failed attempt, from 1: seconds at first, half an hour in the end.
func RetryDelay(attempt int) time.Duration {
	delay := 2 * time.Second
	for range min(attempt, 20) - 1 {
		delay *= 2
	}
	return min(delay, 30*time.Minute)
}

// SpreadDeliveriesJob gives deliveries their jobs. A restock that serves many leaves one for some hundred deliveries, since
// it holds the pool until its commit, and nobody is told anything before that.
type SpreadDeliveriesJob struct {
	Merchant   string       `json:"merchant_id"`
	Deliveries []DeliverJob `json:"deliveries"`
}

// Kind names the job in the queue's tables.
func (SpreadDeliveriesJob) Kind() string { return "spread_deliveries" }

// InsertOpts sets the queue.
func (SpreadDeliveriesJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: settleAttempts}
}

// PickUpJob gives new jobs to events that lost theirs.
type PickUpJob struct{}

// Kind names the job in the queue's tables.
func (PickUpJob) Kind() string { return "pick_up" }

// InsertOpts makes a failed round wait for the next one.
func (PickUpJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: 1}
}

// FoldJob folds the movements into the counts.
type FoldJob struct{}

// Kind names the job in the queue's tables.
func (FoldJob) Kind() string { return "fold" }

// InsertOpts makes a failed round wait for the next one.
func (FoldJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: 1}
}

// TidyShelfJob ends the holds that have run out and takes expired keys off the shelf.
type TidyShelfJob struct{}

// Kind names the job in the queue's tables.
func (TidyShelfJob) Kind() string { return "tidy_shelf" }

// InsertOpts makes a failed round wait for the next one.
func (TidyShelfJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueStock, MaxAttempts: 1}
}

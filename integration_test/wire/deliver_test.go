package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/integration_test/shoptest"
)

// sent is a message as its receiver has it.
type sent struct {
	id   string
	keys []string
}

// A mailbox takes what is sent over any channel, and looks each time whether what is announced was committed.
type mailbox struct{ r *round }

// Send takes a message.
func (b mailbox) Send(_ context.Context, m fulfillment.Message) (string, error) {
	r := b.r
	got := sent{id: m.ID}
	for _, k := range m.Keys {
		got.keys = append(got.keys, k.Text)
		var live bool
		err := r.shop.DB.QueryRow(r.t.Context(), `
SELECT EXISTS (SELECT FROM keytill.keys WHERE key_id = $1 AND order_id = $2 AND state = 'allocated')`, k.KeyID, m.Order.ID).Scan(&live)
		if err != nil || !live {
			r.t.Errorf("key %d was sent, and its allocation to %s is not committed: %v", k.KeyID, m.Order.ID, err)
		}
	}
	var tried bool
	err := r.shop.DB.QueryRow(r.t.Context(), `
SELECT EXISTS (SELECT FROM keytill.deliveries WHERE 'msg_default_' || delivery_id = $1 AND attempts > 0)`, m.ID).Scan(&tried)
	if err != nil || !tried {
		r.t.Errorf("%s was sent, and its row does not say that it was tried: %v", m.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, got)
	return "taken", nil
}

// deliver is the operation that sends what there is for a channel. Overlapped, another keytill has the same job.
func deliver(name string, channel fulfillment.Channel) operation {
	return operation{
		name:  name,
		stock: settleNew.stock,
		begin: func(r *round) {
			r.forward(shoptest.Grace)
			r.settled(r.sell("price_full*2", nil))
			r.keys = collect[int64](r.world, `
SELECT (args->>'delivery_id')::bigint FROM keytill.river_job WHERE kind = 'deliver' AND args->>'order_id' = $1 AND args->>'channel' = $2`,
				r.orders[0], channel)
		},
		run: func(ctx context.Context, r *round, by *shoptest.Shop) error {
			err := by.Service.Deliver(ctx, map[fulfillment.Channel]fulfillment.Sender{channel: mailbox{r}},
				fulfillment.DeliverJob{Merchant: merchant, Delivery: r.keys[0], Order: r.orders[0], Channel: channel})
			var wait *fulfillment.Later
			if errors.As(err, &wait) {
				return fmt.Errorf("put off for %s: %w", wait.After, err)
			}
			return err
		},
		end: func(r *round) { r.sentOnce(channel) },
	}
}

// mostSent is how often a message may come: once for each keytill that was disturbed or overlapped, and once for the one
// that brought it to its end.
const mostSent = 3

// sentOnce wants a message sent, the same one each time.
func (r *round) sentOnce(channel fulfillment.Channel) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.sent); n < 1 || n > mostSent || n > 1 && r.mode == "nothing happens" {
		r.t.Errorf("the message was sent %d times", n)
	}
	for _, s := range r.sent {
		if s.id != r.sent[0].id || !slices.Equal(s.keys, r.sent[0].keys) {
			r.t.Errorf("it was sent once as %v and once as %v", r.sent[0], s)
		}
		if channel == fulfillment.ChannelEmail && len(s.keys) != 2 {
			r.t.Errorf("it holds %d keys", len(s.keys))
		}
	}
	r.wantCount("deliveries sent", 1, `SELECT count(*) FROM keytill.deliveries WHERE delivery_id = $1 AND state = 'sent' AND answer = 'taken'`, r.keys[0])
}

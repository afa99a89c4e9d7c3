package outage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
)

// A crowd buys, calls thank-you pages and supplies keys, all the time, at whatever daemons are open, and remembers what it
// was told.
type crowd struct {
	*shop
	client *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	fronts  []string // URLs of open daemons
	random  *rand.Rand
	name    string           // of its files of keys
	sales   []*sale          // everything sold
	taken   map[string]bool  // events that were answered 200
	batches map[int64]int64  // keys of the imports that were answered 200
	shown   map[string]bool  // orders that a thank-you page showed complete
	owed    []debt           // events that nobody has taken yet
	spare   int              // keys that were supplied and not sold
	done    int              // sales of which the storefront has heard
	counted time.Time        // when they were counted
	files   int              // that were sent
	strange map[string]int   // answers that no daemon may give
	refused int              // events that were answered 503
	broken  int              // calls of the API that were answered 5xx
	log     []acknowledgment // of events, in order
}

// A sale is one paid Checkout Session.
type sale struct {
	id       string // cs_…
	email    string
	quantity int
	waits    bool // for stock, so that it is told of more than once
}

// A debt is an event that Stripe still has to deliver.
type debt struct {
	event stripefake.Event
	sale  *sale
}

// An acknowledgment is a 200 for an event.
type acknowledgment struct {
	debt
	at time.Time
}

const (
	buyers    = 6
	inHand    = 40 // sales of which the storefront has not heard: a longer queue would test the machine's patience alone
	reserve   = 40 // keys that are kept on the shelf: nobody buys below that
	batchSize = 25
)

// gather lets a crowd in. It is sent home with the test at the latest.
func (s *shop) gather(keys int, seed uint64) *crowd {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{shop: s, cancel: cancel, random: rand.New(rand.NewPCG(seed, 7)), name: fmt.Sprintf("S%d", seed), spare: keys,
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		taken:  make(map[string]bool), batches: make(map[int64]int64), shown: make(map[string]bool), strange: make(map[string]int)}
	for range buyers {
		c.wg.Go(func() { c.buy(ctx) })
	}
	c.wg.Go(func() { c.supply(ctx) })
	s.t.Cleanup(c.goHome)
	return c
}

// goHome ends the buying; what Stripe has not delivered yet stays owed.
func (c *crowd) goHome() {
	c.cancel()
	c.wg.Wait()
	c.client.CloseIdleConnections()
}

// visit says which daemons are open from now on.
func (c *crowd) visit(daemons ...*daemon) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fronts = nil
	for _, d := range daemons {
		c.fronts = append(c.fronts, d.url)
	}
}

// front picks an open daemon; "" if there is none.
func (c *crowd) front() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fronts) == 0 {
		return ""
	}
	return c.fronts[c.random.IntN(len(c.fronts))]
}

func (c *crowd) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *crowd) buy(ctx context.Context) {
	for ctx.Err() == nil {
		s := c.sell()
		if s == nil {
			if d, any := c.again(); any {
				c.deliver(ctx, d)
			}
			pause(ctx, 50*time.Millisecond)
			continue
		}
		for _, event := range c.tell(s) {
			c.deliver(ctx, debt{event, s})
		}
		if c.intN(4) == 0 {
			c.thank(ctx, s)
		}
		pause(ctx, time.Duration(c.intN(20))*time.Millisecond)
	}
}

// sell makes a sale at Stripe, unless too few keys are left or too many sales are open.
func (c *crowd) sell() *sale {
	c.mu.Lock()
	if time.Since(c.counted) > 50*time.Millisecond {
		c.done, c.counted = c.hook.Count(string(fulfillment.FulfillmentCompleted)), time.Now()
	}
	s := &sale{quantity: 1 + c.random.IntN(2)}
	if c.spare-s.quantity < reserve || len(c.sales)-c.done >= inHand {
		c.mu.Unlock()
		return nil
	}
	c.spare -= s.quantity
	n := len(c.sales)
	s.id, s.email = fmt.Sprintf("cs_%s%d", c.name, n), fmt.Sprintf("buyer-%s-%d@example.com", strings.ToLower(c.name), n)
	c.sales = append(c.sales, s)
	c.mu.Unlock()
	if err := c.record(s, time.Time{}); err != nil {
		panic(err) // the test itself is wrong
	}
	return s
}

// again picks an event that was taken already. Stripe sends some twice, and so there is always something to take.
func (c *crowd) again() (debt, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.log) == 0 {
		return debt{}, false
	}
	return c.log[c.random.IntN(len(c.log))].debt, true
}

// record makes a sale's session at Stripe, of now or of another time.
func (s *shop) record(sold *sale, at time.Time) error {
	of := price
	if sold.waits {
		of = rarePrice
	}
	items, err := stripefake.ParseItems(fmt.Sprintf("%s*%d@1000", of, sold.quantity))
	if err != nil {
		return err
	}
	fields := stripefake.Fields{"customer_details.email": sold.email}
	if !at.IsZero() {
		fields["created"] = strconv.FormatInt(at.Unix(), 10)
	}
	return s.stripe.Session(sold.id, items, fields)
}

// tell makes the events of a sale, in no order, some of them twice.
func (c *crowd) tell(s *sale) []stripefake.Event {
	var events []stripefake.Event
	for _, about := range [][2]string{{"checkout.session.completed", s.id}, {"payment_intent.succeeded", "pi_" + strings.TrimPrefix(s.id, "cs_")}} {
		event, err := c.stripe.Event(about[0], about[1], stripefake.EventOptions{})
		if err != nil {
			panic(err) // the test itself is wrong
		}
		for range 1 + c.intN(2) {
			events = append(events, event)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	return events
}

// deliver sends an event until it is answered 200, as Stripe does, or until everybody goes home.
func (c *crowd) deliver(ctx context.Context, d debt) {
	for ctx.Err() == nil {
		if front := c.front(); front != "" {
			status, body, err := c.stripe.Deliver(ctx, front+webhookPath, d.event)
			if err == nil && c.answered(d, status, string(body)) {
				return
			}
		}
		pause(ctx, 20*time.Millisecond) // Stripe's own is longer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed = append(c.owed, d)
}

// answered notes an answer to an event and reports whether it was taken.
func (c *crowd) answered(d debt, status int, body string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch status {
	case http.StatusOK:
		c.taken[d.event.ID] = true
		c.log = append(c.log, acknowledgment{d, time.Now()})
		return true
	case http.StatusServiceUnavailable:
		c.refused++
	default:
		c.strange[fmt.Sprintf("webhook: %d %s", status, body)]++
	}
	return false
}

// thank is the buyer's page after the payment: it asks once and shows what it is told.
func (c *crowd) thank(ctx context.Context, s *sale) {
	var order struct {
		Lines []struct {
			Units []struct{ State string }
		}
	}
	if c.post(ctx, "/v1/orders/"+s.id+"/settle", "", &order) != http.StatusOK {
		return
	}
	complete := 0
	for _, l := range order.Lines {
		for _, u := range l.Units {
			if u.State == "fulfilled" {
				complete++
			}
		}
	}
	if complete == s.quantity {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shown[s.id] = true
	}
}

// supply brings keys while few are left.
func (c *crowd) supply(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		file, low := fmt.Sprintf("%sF%d", c.name, c.files), c.spare < 20*reserve
		c.files++
		c.mu.Unlock()
		if low {
			var done struct{ Batch, New int64 }
			if c.post(ctx, "/v1/pools/"+sku+"/imports?file="+file+".txt", keyFile(file, batchSize), &done) == http.StatusOK {
				c.mu.Lock()
				c.batches[done.Batch] = done.New
				c.spare += int(done.New)
				c.mu.Unlock()
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// post calls the API and returns the status, 0 if there was no answer. What a daemon may not answer is noted.
func (c *crowd) post(ctx context.Context, path, body string, into any) int {
	front := c.front()
	if front == "" {
		return 0
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, front+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the test itself is wrong
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if err := json.Unmarshal(text, into); err != nil {
			return 0
		}
	case http.StatusServiceUnavailable, http.StatusInternalServerError:
		c.mu.Lock()
		c.broken++
		c.mu.Unlock()
	default:
		c.mu.Lock()
		c.strange[fmt.Sprintf("%s: %d %s", strings.Split(path, "?")[0], resp.StatusCode, text)]++
		c.mu.Unlock()
	}
	return resp.StatusCode
}

// acknowledged is how many events were taken so far.
func (c *crowd) acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.taken)
}

// toldBefore are the sales of which an event was taken before a moment.
func (c *crowd) toldBefore(at time.Time) map[string]*sale {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := make(map[string]*sale)
	for _, a := range c.log {
		if a.at.Before(at) {
			told[a.sale.id] = a.sale
		}
	}
	return told
}

// settleDebts delivers what nobody has taken, now that somebody is there to take it.
func (c *crowd) settleDebts(within time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c.mu.Lock()
	owed := slices.Clone(c.owed)
	c.owed = nil
	c.mu.Unlock()
	for _, d := range owed {
		c.deliver(ctx, d)
	}
	if n := len(c.owed); n > 0 {
		c.t.Fatalf("%d of %d events were not taken within %v", n, len(owed), within)
	}
}

// work waits until so many more events were taken: the daemons are at work.
func (c *crowd) work(events int, within time.Duration) {
	c.t.Helper()
	from := c.acknowledged()
	c.await(within, fmt.Sprintf("%d more events are taken", events), func(context.Context) (bool, error) {
		return c.acknowledged()-from >= events, nil
	})
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

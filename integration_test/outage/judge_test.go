package outage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

const judgePatience = 3 * time.Minute // of a machine that does much else

// lost says what the database does not know any more of what the crowd was told. It is true of a whole database at any
// moment, whoever is at work on it.
func (c *crowd) lost() (lost []string) {
	c.t.Helper()
	c.mu.Lock()
	taken, batches, shown := slices.Collect(maps.Keys(c.taken)), maps.Clone(c.batches), slices.Collect(maps.Keys(c.shown))
	c.mu.Unlock()
	for _, id := range c.missing(taken, `SELECT event_id FROM keytill.events WHERE event_id = ANY($1)`) {
		lost = append(lost, "event "+id+" was answered 200")
	}
	// A key once shown may not become another's, and its unit has it.
	for _, id := range c.missing(shown, `
SELECT order_id FROM keytill.fulfilments WHERE order_id = ANY($1) GROUP BY order_id
HAVING bool_and(state = 'fulfilled' AND key_id IS NOT NULL)`) {
		lost = append(lost, "order "+id+" was shown to be complete")
	}
	kept := make(map[int64]int64)
	rows, err := c.db.Query(c.t.Context(), `SELECT batch_id, count(*) FROM keytill.keys GROUP BY batch_id`)
	c.must(err)
	var batch, keys int64
	_, err = pgx.ForEachRow(rows, []any{&batch, &keys}, func() error {
		kept[batch] = keys
		return nil
	})
	c.must(err)
	for batch, keys := range batches {
		if kept[batch] != keys {
			lost = append(lost, fmt.Sprintf("batch %d was answered with %d keys and has %d", batch, keys, kept[batch]))
		}
	}
	return lost
}

func (c *crowd) missing(want []string, query string) []string {
	c.t.Helper()
	rows, err := c.db.Query(c.t.Context(), query, want)
	c.must(err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	c.must(err)
	have := make(map[string]bool, len(found))
	for _, id := range found {
		have[id] = true
	}
	return slices.DeleteFunc(want, func(id string) bool { return have[id] })
}

// hold checks what must be true at any moment: nothing that anybody was told is lost, and keytill's promises hold. grace is
// how long a unit may have waited beside stock.
func (c *crowd) hold(grace time.Duration) {
	c.t.Helper()
	for _, l := range c.lost() {
		c.t.Error("lost: " + l)
	}
	breaches, err := fulfillment.Check(c.t.Context(), c.db, time.Now(), grace)
	c.must(err)
	for _, b := range breaches {
		c.t.Error(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for answer, n := range c.strange {
		c.t.Errorf("answered %d times: %s", n, answer)
	}
}

// complete waits until sales have all their keys.
func (c *crowd) complete(within time.Duration, sales map[string]*sale) {
	c.t.Helper()
	var open []string
	c.await(within, fmt.Sprintf("%d sales have their keys", len(sales)), func(ctx context.Context) (bool, error) {
		if err := c.hurry(ctx); err != nil {
			return false, err
		}
		done, err := c.unitsOf(ctx, `state = 'fulfilled'`)
		open = nil
		for id, s := range sales {
			if len(done[id]) != s.quantity {
				open = append(open, id)
			}
		}
		if len(open) > 0 && err == nil {
			slices.Sort(open)
			err = fmt.Errorf("not complete: %d, among them %s", len(open), strings.Join(open[:min(5, len(open))], ", "))
		}
		return len(open) == 0, err
	})
}

// unitsOf reads the keys of each order's units.
func (c *crowd) unitsOf(ctx context.Context, which string) (map[string][]int64, error) {
	rows, err := c.db.Query(ctx, `SELECT order_id, coalesce(key_id, 0) FROM keytill.fulfilments WHERE `+which)
	if err != nil {
		return nil, err
	}
	units := make(map[string][]int64)
	var (
		order string
		key   int64
	)
	_, err = pgx.ForEachRow(rows, []any{&order, &key}, func() error {
		units[order] = append(units[order], key)
		return nil
	})
	return units, err
}

// judge ends a test: everybody goes home, a fresh daemon does what is left, minutes after whatever broke, and then each sale
// has its keys, each buyer and the storefront were told of exactly these, and of each at most 1 + again times.
func (c *crowd) judge(url string, again int) {
	c.t.Helper()
	c.minutesPass()
	d := c.serve(url)
	c.visit(d)
	c.settleDebts(judgePatience)
	c.complete(judgePatience, c.everything())
	c.rest(judgePatience)
	d.stop(c.t)
	c.hold(0)
	if n, err := c.count(c.t.Context(), `SELECT count(*) FROM keytill.fulfilments WHERE state <> 'fulfilled'`); n > 0 || err != nil {
		c.t.Errorf("%d units are not fulfilled (%v)", n, err)
	}
	c.judgeNotices(again)
}

func (c *crowd) everything() map[string]*sale {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]*sale, len(c.sales))
	for _, s := range c.sales {
		all[s.id] = s
	}
	return all
}

// rest waits until nothing is left to do.
func (c *crowd) rest(within time.Duration) {
	c.t.Helper()
	c.await(within, "nothing is left to do", func(ctx context.Context) (bool, error) {
		if err := c.hurry(ctx); err != nil {
			return false, err
		}
		rows, err := c.db.Query(ctx, leftToDo)
		if err != nil {
			return false, err
		}
		left, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d or more are left:\n%s", len(left), strings.Join(left, "\n"))
		}
		return err == nil, err
	})
}

// What is pending, with the job that is to do it.
const leftToDo = `
SELECT format('event %s of %s, next try at %s, job %s', event_id, payment, next_try_at, j.job)
  FROM keytill.events e
  LEFT JOIN LATERAL (SELECT format('%s at %s, tried %s times', state, scheduled_at, attempt) AS job FROM keytill.river_job
                      WHERE kind = 'settle' AND args->>'event_id' = e.event_id ORDER BY id DESC LIMIT 1) j ON true
 WHERE e.state = 'pending'
UNION ALL
SELECT format('%s %s of %s, tried %s times, %s, job %s', channel, type, order_id, attempts, last_error, j.job)
  FROM keytill.deliveries d
  LEFT JOIN LATERAL (SELECT format('%s at %s, tried %s times', state, scheduled_at, attempt) AS job FROM keytill.river_job
                      WHERE kind = 'deliver' AND args->>'delivery_id' = d.delivery_id::text ORDER BY id DESC LIMIT 1) j ON true
 WHERE d.state = 'pending'
 LIMIT 10`

var keyText = regexp.MustCompile(`KEY-[0-9A-Z]+-[0-9]{6}`)

// judgeNotices compares what was announced with what the database has.
func (c *crowd) judgeNotices(again int) {
	c.t.Helper()
	own := c.keysBySale()
	byMail := make(map[string]*sale)
	for _, s := range c.everything() {
		byMail[s.email] = s
	}
	mails := make(map[string][]string) // sale → the keys of each mail
	for _, m := range c.mail.Messages() {
		s := byMail[m.To[0]]
		if s == nil {
			c.t.Errorf("a mail to %s, who has bought nothing", m.To)
			continue
		}
		mails[s.id] = append(mails[s.id], distinct(keyText.FindAllString(m.Text, -1)))
	}
	notices := make(map[string][]string)
	for _, n := range c.hook.Notices() {
		if n.Type != string(fulfillment.FulfillmentCompleted) {
			continue
		}
		order, keys := readNotice(c.t.Fatal, n.Data)
		notices[order] = append(notices[order], distinct(keys))
	}
	c.compare("mail", own, mails, again)
	c.compare("notice", own, notices, again)
}

// compare wants each sale to have been told of at least once and at most 1 + again times, each time of its own keys.
func (c *crowd) compare(what string, own map[string]string, told map[string][]string, again int) {
	c.t.Helper()
	extra := 0
	for sale, keys := range own {
		if len(told[sale]) == 0 {
			c.t.Errorf("no %s of %s", what, sale)
			continue
		}
		if c.waited(sale) {
			if last := told[sale][len(told[sale])-1]; last != keys {
				c.t.Errorf("the last %s of %s names %s, its keys are %s", what, sale, last, keys)
			}
			continue
		}
		extra += len(told[sale]) - 1
		if len(told[sale]) > 1+again {
			c.t.Errorf("%d times a %s of %s, and no more than %d outages", len(told[sale]), what, sale, again)
		}
		for _, t := range told[sale] {
			if t != keys {
				c.t.Errorf("a %s of %s names %s, its keys are %s", what, sale, t, keys)
			}
		}
	}
	for sale := range told {
		if _, sold := own[sale]; !sold {
			c.t.Errorf("a %s of %s, which nobody has bought", what, sale)
		}
	}
	// Only what is just being sent at an outage is sent again.
	if most := again * atOnce; extra > most {
		c.t.Errorf("%d times a %s was sent again, which is more than %d at each of %d outages", extra, what, atOnce, again)
	}
	c.t.Logf("%d sales; %d times a %s was sent again", len(own), extra, what)
}

// waited says of a sale that had to wait for stock.
func (c *crowd) waited(id string) bool {
	s := c.everything()[id]
	return s != nil && s.waits
}

// atOnce is how many deliveries of one channel keytill has in hand at most: its workers, in up to two daemons.
const atOnce = 2 * 24

// keysBySale decrypts what each sale got.
func (c *crowd) keysBySale() map[string]string {
	c.t.Helper()
	units, err := c.unitsOf(c.t.Context(), `key_id IS NOT NULL`)
	c.must(err)
	var ids []int64
	for _, keys := range units {
		ids = append(ids, keys...)
	}
	texts, err := c.keyset.Texts(c.t.Context(), c.db, inventory.DefaultMerchant, ids)
	c.must(err)
	own := make(map[string]string, len(units))
	holder := make(map[string]string, len(ids))
	for order, keys := range units {
		var mine []string
		for _, k := range keys {
			if other, twice := holder[texts[k]]; twice {
				c.t.Errorf("%s and %s have the same key", order, other)
			}
			holder[texts[k]] = order
			mine = append(mine, texts[k])
		}
		own[order] = distinct(mine)
	}
	return own
}

// distinct writes keys down in one order, each once.
func distinct(keys []string) string {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), " ")
}

func readNotice(fail func(...any), data []byte) (order string, keys []string) {
	var notice struct {
		Order struct{ ID string }
		Units []struct{ Key string }
	}
	if err := json.Unmarshal(data, &notice); err != nil {
		fail(err)
	}
	for _, u := range notice.Units {
		keys = append(keys, u.Key)
	}
	return notice.Order.ID, keys
}

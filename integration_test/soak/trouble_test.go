package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/stripefake"
)

// A trouble goes on for a while. It returns what could not be done to make it, which is an error of the test.
type trouble struct {
	name string
	play func(*day, context.Context, *rand.Rand, time.Duration) error
}

// troubles are all that happen. Each plays at least once in any run: they come in rounds.
var troubles = []trouble{
	{"Stripe errs", (*day).stripeErrs},
	{"connections cut", (*day).cutConnections},
	{"mail down", (*day).mailDown},
	{"snapshot held", (*day).holdSnapshot},
	{"daemon told to stop", (*day).stopDaemon},
	{"daemon killed", (*day).killDaemon},
	{"stock runs out", (*day).runOut},
}

// makeTrouble plays all troubles in ever new orders until ctx ends, often two at a time.
func (d *day) makeTrouble(ctx context.Context, random *rand.Rand, each time.Duration) error {
	for ctx.Err() == nil {
		for _, i := range random.Perm(len(troubles)) {
			t := troubles[i]
			if ctx.Err() != nil {
				break
			}
			if err := t.play(d, ctx, random, each/2+time.Duration(random.Int64N(int64(each)))); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			d.count(t.name)
			wait(ctx, time.Duration(random.Int64N(int64(each))))
		}
	}
	return nil
}

// stripeErrs has a third of Stripe's answers be errors, be cut, or come late.
func (d *day) stripeErrs(ctx context.Context, _ *rand.Rand, length time.Duration) error {
	d.stripeFaults.Store(true)
	defer d.stripeFaults.Store(false)
	wait(ctx, length)
	return nil
}

// fault draws what is wrong with a call of Stripe's.
func (d *day) fault(*http.Request) *stripefake.Fault {
	if !d.stripeFaults.Load() {
		return nil
	}
	switch rand.IntN(18) {
	case 0:
		return &stripefake.Fault{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}}
	case 1:
		return &stripefake.Fault{Status: http.StatusTooManyRequests}
	case 2:
		return &stripefake.Fault{Status: http.StatusInternalServerError}
	case 3:
		return &stripefake.Fault{Status: http.StatusInternalServerError, Header: http.Header{"Stripe-Should-Retry": {"false"}}}
	case 4:
		return &stripefake.Fault{Cut: true}
	case 5:
		return &stripefake.Fault{Delay: time.Duration(rand.IntN(2000)) * time.Millisecond}
	default:
		return nil
	}
}

// cutConnections cuts the daemons' connections to the database, all or some, whatever they are doing.
func (d *day) cutConnections(ctx context.Context, random *rand.Rand, length time.Duration) error {
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
		_, err := d.db.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'soak-%' AND random() < $1`, []float64{0.1, 0.3, 1}[random.IntN(3)])
		if err != nil {
			return err
		}
		wait(ctx, time.Duration(random.Int64N(int64(time.Second))))
	}
	return nil
}

func (d *day) mailDown(ctx context.Context, random *rand.Rand, length time.Duration) error {
	defer d.mail.Up()
	switch random.IntN(3) {
	case 0:
		d.mail.Down()
	case 1:
		d.mail.DropAfterData()
	default:
		d.mail.Slow(300 * time.Millisecond)
	}
	wait(ctx, length)
	return nil
}

// holdSnapshot keeps the rows that die meanwhile from being vacuumed, as a long report or a backup does.
func (d *day) holdSnapshot(ctx context.Context, _ *rand.Rand, length time.Duration) error {
	tx, err := d.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM keytill.keys`).Scan(&n); err != nil {
		return err
	}
	wait(ctx, length)
	return nil
}

func (d *day) stopDaemon(ctx context.Context, _ *rand.Rand, length time.Duration) error {
	return d.restart(ctx, false, length)
}

func (d *day) killDaemon(ctx context.Context, _ *rand.Rand, length time.Duration) error {
	return d.restart(ctx, true, length)
}

func (d *day) restart(ctx context.Context, kill bool, length time.Duration) error {
	if err := d.restless.end(kill); err != nil {
		return err
	}
	wait(ctx, length/4)
	return d.restless.start(d.clock.by())
}

// runOut stops the deliveries of new stock for a while, so that units wait.
func (d *day) runOut(ctx context.Context, _ *rand.Rand, length time.Duration) error {
	d.noSupply.Store(true)
	defer d.noSupply.Store(false)
	wait(ctx, length)
	return nil
}

// count notes that a trouble was played.
func (d *day) count(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.played[name]++
}

// playedTroubles tells how often each was.
func (d *day) playedTroubles() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var told []string
	for _, t := range troubles {
		told = append(told, fmt.Sprintf("%s %d", t.name, d.played[t.name]))
	}
	sort.Strings(told)
	return strings.Join(told, ", ")
}

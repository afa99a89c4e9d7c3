package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/reconcile"
)

const restartServe = "`keytill serve` does not start like this"

// checkConfiguration looks at the settings as serve would. What is merely not set is a note: doctor may run where the
// daemon does not.
func (x *examination) checkConfiguration() {
	before := len(x.checks)
	s := x.settings
	for _, problem := range []error{together("KEYTILL_SMTP_URL", s.smtpURL, "KEYTILL_MAIL_FROM", s.mailFrom),
		together("KEYTILL_HOOK_URL", s.hookURL, "KEYTILL_HOOK_SECRET", s.hookSecret)} {
		if problem != nil {
			x.wrong("configuration", oneLine(problem), restartServe)
		}
	}
	if _, err := x.sweepSettings(); err != nil {
		x.wrong("configuration", oneLine(err), restartServe)
	}
	if ttl, err := time.ParseDuration(s.reservationTTL); err != nil || ttl <= 0 {
		x.wrong("configuration", fmt.Sprintf("KEYTILL_RESERVATION_TTL is %q", s.reservationTTL), "set it to a time such as 15m")
	}
	if _, err := x.readTokens(); err != nil {
		x.wrong("configuration", oneLine(err), restartServe)
	}
	if s.stripeKey != "" {
		if _, err := stripeapi.Livemode(s.stripeKey); err != nil {
			x.wrong("configuration", oneLine(err), restartServe)
		}
	}
	if len(x.checks) == before {
		x.good("configuration", "what is set can be used")
	}
	for _, missing := range []struct {
		value, name, means string
	}{
		{s.stripeKey, "KEYTILL_STRIPE_API_KEY", "the daemon does not start, and doctor cannot ask Stripe"},
		{s.stripeSecrets, "KEYTILL_STRIPE_WEBHOOK_SECRETS", "the daemon does not start"},
		{s.smtpURL + s.hookURL, "KEYTILL_SMTP_URL, KEYTILL_HOOK_URL", "buyers get no mail and the storefront no notices"},
		{s.tokensFile, "KEYTILL_TOKENS_FILE", "the API and the console are closed"},
	} {
		if missing.value == "" {
			x.note("configuration", "not set here: "+missing.name, "without it, "+missing.means)
		}
	}
}

func (x *examination) checkDatabase(ctx context.Context, db *database) {
	var version string
	if err := db.pool.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version); err != nil {
		x.wrong("database", oneLine(err), "see that PostgreSQL is up, and KEYTILL_DATABASE_URL is right")
		return
	}
	where := "at KEYTILL_DATABASE_URL"
	if x.settings.databaseURL == "" {
		where = "embedded, in " + x.settings.dataDir
	}
	x.good("database", "PostgreSQL %s answers, %s", version, where)
}

func (x *examination) checkKeyset(ctx context.Context, db *database) {
	keyset, err := x.loadKeyset(ctx)
	if err == nil {
		err = inventory.CheckKeyset(ctx, db.pool, keyset)
	}
	if err != nil {
		x.wrong("keyset", oneLine(err), "without it no key of this database can be read: restore it from its backup")
		return
	}
	x.good("keyset", "it is the database's")
}

// checkEndpoint looks at the webhook endpoint at Stripe, where there is a key to ask with. What it finds is a note: the
// sweep makes up for an endpoint that is broken.
func (x *examination) checkEndpoint(ctx context.Context, db *database) {
	const name = "webhook endpoint"
	live, err := stripeapi.Livemode(x.settings.stripeKey)
	if err != nil {
		x.note(name, "not looked at, for want of a Stripe API key", "set KEYTILL_STRIPE_API_KEY as the daemon has it, and run this again")
		return
	}
	stripe, err := stripeapi.New(stripeapi.Config{Key: x.settings.stripeKey, URL: x.settings.stripeURL,
		Account: func(ctx context.Context, merchant string) (string, error) {
			return inventory.StripeAccount(ctx, db.pool, merchant)
		}})
	if err != nil {
		x.wrong(name, oneLine(err), restartServe)
		return
	}
	report, err := adapter.CheckEndpoint(ctx, stripe, live)
	if err != nil {
		x.note(name, "Stripe could not be asked: "+oneLine(err), "check KEYTILL_STRIPE_API_KEY and the network")
		return
	}
	for _, p := range report.Problems {
		x.note(name, strings.TrimSpace(p.Endpoint+" "+p.What), p.Do)
	}
	for _, note := range report.Notes {
		x.good(name, "%s", note)
	}
}

// servedWithin is how old a unit may be that waits beside stock: its pool is served within moments.
const servedWithin = time.Minute

func (x *examination) checkPromises(ctx context.Context, db *database) (err error) {
	if x.breaches, err = fulfillment.Check(ctx, db.pool, x.Now(), servedWithin); err != nil {
		return err
	}
	if len(x.breaches) == 0 {
		x.good("promises", "keys, units, counts and movements agree")
	}
	for _, breach := range x.breaches {
		do := "this should not happen: keep the database as it is, and look at the order's history"
		switch {
		case strings.Contains(breach, "waits in pool"):
			do = "see that a daemon runs: it serves what waits within a minute"
		case strings.Contains(breach, "by its counts"):
			do = "`keytill stock rebuild` counts anew from the rows"
		}
		x.wrong("promises", breach, do)
	}
	return nil
}

func (x *examination) checkStuck(ctx context.Context, db *database) error {
	stuck, err := fulfillment.LoadStuck(ctx, db.pool, x.Now())
	if err != nil {
		return err
	}
	before := len(x.checks)
	for _, s := range []struct {
		work     fulfillment.StuckWork
		say      func(name, detail, do string)
		name     string
		what, do string
	}{
		{stuck.Unworked, x.wrong, "events", "event|whose next try is overdue", "no process works jobs: start `keytill serve`, or see why it does not get to it"},
		{stuck.Events, x.wrong, "events", "event|not settled for a quarter of an hour or more", "it is tried again and again; `keytill order settle ID` shows at once what is in the way"},
		{stuck.Deliveries, x.wrong, "deliveries", "notice|due for an hour or more and not delivered", "look at the mail server or the storefront's receiver; it is tried for three days"},
		{stuck.Waiting, x.note, "waiting", "paid unit|that wait for stock", "import keys: the oldest orders get them first"},
		{stuck.Findings, x.note, "findings", "finding|open", "`keytill findings` lists them"},
	} {
		if s.work.Count == 0 {
			continue
		}
		one, is, _ := strings.Cut(s.what, "|")
		s.say(s.name, fmt.Sprintf("%s %s; the oldest since %s UTC (%s)", plural(s.work.Count, one), is, day(s.work.Since), s.work.What), s.do)
	}
	for _, job := range stuck.Discarded {
		x.note("jobs", fmt.Sprintf("%s of kind %s given up, the first at %s UTC", plural(job.Count, "job"), job.What, day(job.Since)),
			"what it was for is picked up again; the daemon's log of that time says why")
	}
	if len(x.checks) == before {
		x.good("work", "nothing is stuck")
	}
	return nil
}

// sweptWithin is how old the last sweep may be: four of the usual pauses.
const sweptWithin = time.Hour

func (x *examination) checkSweeps(ctx context.Context, db *database) error {
	reports, err := reconcile.LastReports(ctx, db.pool, x.settings.merchant, 1)
	if err != nil {
		return err
	}
	if len(reports) == 0 {
		x.note("sweep", "none has ended yet", "the daemon sweeps every 15 minutes; `keytill reconcile` does it now")
		return nil
	}
	last := reports[0]
	ago := x.Now().Sub(last.EndedAt).Round(time.Second)
	said := fmt.Sprintf("the last one ended %s ago, and settled %s", ago, plural(int64(last.Repaired), "payment"))
	switch {
	case last.Error != "":
		x.note("sweep", "the last one ended early: "+last.Error, "the next goes on where it stopped; `keytill reconcile` does it now")
	case last.Failed > 0:
		x.note("sweep", fmt.Sprintf("%s, and could not settle %d", said, last.Failed), "`keytill reconcile --dry-run` lists them")
	case last.Silence != "":
		x.note("sweep", last.Silence, "see the webhook endpoint above")
	case ago > sweptWithin:
		x.note("sweep", said, "see that a daemon runs, and KEYTILL_RECONCILE_EVERY is not off")
	default:
		x.good("sweep", "%s", said)
	}
	return nil
}

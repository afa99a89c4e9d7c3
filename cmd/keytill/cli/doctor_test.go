package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patient is a database for doctor to look at.
type patient struct {
	t   *testing.T
	db  *pgxpool.Pool
	env map[string]string
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	url := pgtest.NewURL(t)
	keyset, err := inventory.NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyset.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &patient{t: t, db: pgtest.Pool(t, url), env: map[string]string{"KEYTILL_DATABASE_URL": url, "KEYTILL_KEYSET": string(text)}}
}

func (p *patient) exec(query string) {
	p.t.Helper()
	if _, err := p.db.Exec(p.t.Context(), query); err != nil {
		p.t.Fatal(err)
	}
}

// doctor examines it, and holds the text against the JSON.
func (p *patient) doctor(wantExit int) diagnosis {
	p.t.Helper()
	var out, text, problems bytes.Buffer
	at := time.Now()
	run := func(to *bytes.Buffer, args ...string) {
		p.t.Helper()
		proc := process(to, &problems, args...)
		proc.Now = func() time.Time { return at } // both tell how long ago things were
		proc.Getenv = func(name string) string { return p.env[name] }
		if code := Run(p.t.Context(), proc); code != wantExit {
			p.t.Fatalf("exit %d, want %d: %s%s", code, wantExit, to.String(), problems.String())
		}
	}
	run(&out, "doctor", "--json")
	run(&text, "doctor")
	var d diagnosis
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		p.t.Fatal(err)
	}
	wrong := 0
	for _, c := range d.Checks {
		if !strings.Contains(text.String(), c.Detail) {
			p.t.Errorf("the text lacks %q:\n%s", c.Detail, text.String())
		}
		if c.Status == isWrong {
			wrong++
		}
		if c.Status != isOK && c.Do == "" {
			p.t.Errorf("it does not say what to do about %s: %s", c.Name, c.Detail)
		}
	}
	if got := strings.Count("\n"+text.String(), "\nWRONG "); got != wrong || d.OK != (wrong == 0) {
		p.t.Errorf("%d lines begin with WRONG, %d checks are, ok is %t", got, wrong, d.OK)
	}
	return d
}

func (d diagnosis) find(name string) (found []check) {
	for _, c := range d.Checks {
		if c.Name == name {
			found = append(found, c)
		}
	}
	return found
}

func (p *patient) want(d diagnosis, name string, status checkStatus, detail string) {
	p.t.Helper()
	for _, c := range d.find(name) {
		if c.Status == status && strings.Contains(c.Detail, detail) {
			if status == isWrong && c.Do == "" {
				p.t.Errorf("%s is wrong, and doctor does not say what to do: %s", name, c.Detail)
			}
			return
		}
	}
	p.t.Errorf("no check of %s is %s with %q: %+v", name, status, detail, d.find(name))
}

func TestDoctorFindsNothingWrongWithAFreshDatabase(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	d := p.doctor(exitDone)
	for _, name := range []string{"configuration", "database", "schema", "keyset", "promises", "work"} {
		p.want(d, name, isOK, "")
	}
	p.want(d, "sweep", isNote, "none")
}

func TestDoctorLooksAtTheConfiguration(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.env["KEYTILL_SMTP_URL"] = "smtp://mail.example:25"
	p.env["KEYTILL_RECONCILE_EVERY"] = "often"
	p.env["KEYTILL_STRIPE_API_KEY"] = "pk_test_x"
	p.env["KEYTILL_TOKENS_FILE"] = t.TempDir() + "/none"
	d := p.doctor(exitFailed)
	for _, name := range []string{"KEYTILL_MAIL_FROM", "KEYTILL_RECONCILE_EVERY", "publishable", "KEYTILL_TOKENS_FILE"} {
		p.want(d, "configuration", isWrong, name)
	}
}

func TestDoctorStopsWithoutADatabase(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.exec(`DROP SCHEMA keytill CASCADE`)
	p.want(p.doctor(exitFailed), "schema", isWrong, "keytill migrate")
	p.env["KEYTILL_DATABASE_URL"] = "postgres://x:secret@127.0.0.1:1/none"
	d := p.doctor(exitFailed)
	if found := d.find("database"); len(found) != 1 || found[0].Status != isWrong || strings.Contains(found[0].Detail, "secret") {
		t.Errorf("%+v", found)
	}
}

func TestDoctorKnowsTheKeyset(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.doctor(exitDone)
	other := newPatient(t)
	p.env["KEYTILL_KEYSET"] = other.env["KEYTILL_KEYSET"]
	p.want(p.doctor(exitFailed), "keyset", isWrong, "")
}

func TestDoctorLooksAtTheEndpoint(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	fake := stripefake.Start(stripefake.Config{})
	t.Cleanup(fake.Close)
	p.env["KEYTILL_STRIPE_API_KEY"], p.env["KEYTILL_STRIPE_API_URL"] = fake.APIKey(), fake.URL()
	p.want(p.doctor(exitDone), "webhook endpoint", isNote, "no webhook endpoint")
}

func TestDoctorFindsStuckWork(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.exec(`INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at, note)
		VALUES ('default', 'evt_1', 'x', 'cs_1', 'cs_1', false, now() - interval '1 hour', now() + interval '1 minute', 'Stripe does not answer'),
		       ('default', 'evt_2', 'x', 'cs_2', 'cs_2', false, now() - interval '10 minutes', now() - interval '9 minutes', '')`)
	p.exec(`INSERT INTO keytill.deliveries (merchant_id, channel, type, send_after, created_at, last_error)
		VALUES ('default', 'hook', 'stock.low', now() - interval '2 hours', now(), 'refused'),
		       ('default', 'hook', 'stock.low', now() + interval '2 hours', now(), '')`)
	p.exec(`INSERT INTO keytill.findings (merchant_id, kind, subject, detail, opened_at) VALUES ('default', 'shortage', 'cs_9', 'x', now())`)
	p.exec(`INSERT INTO keytill.river_job (state, kind, queue, args, max_attempts, finalized_at, attempt, errors)
		VALUES ('discarded', 'deliver', 'hook', '{}', 1, now(), 1, '{}')`)
	p.exec(`INSERT INTO keytill.sweeps (merchant_id, started_at, ended_at, report)
		VALUES ('default', now(), now(), jsonb_build_object('ended_at', now() - interval '3 hours', 'repaired', 2))`)
	d := p.doctor(exitFailed)
	p.want(d, "events", isWrong, "1 event not settled")
	p.want(d, "events", isWrong, "evt_1: Stripe does not answer")
	p.want(d, "events", isWrong, "1 event whose next try is overdue")
	p.want(d, "deliveries", isWrong, "1 notice due")
	p.want(d, "findings", isNote, "1 finding open")
	p.want(d, "jobs", isNote, "1 job of kind deliver")
	p.want(d, "sweep", isNote, "3h0m")
}

func TestDoctorHoldsThePromises(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.exec(`INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'game', 'Game', now())`)
	p.exec(`INSERT INTO keytill.stock (merchant_id, pool_id, counts) SELECT merchant_id, pool_id, '{"available": 3}' FROM keytill.pools`)
	d := p.doctor(exitFailed)
	p.want(d, "promises", isWrong, "3 keys available by its counts and 0 by its rows")
	if len(d.Breaches) != 1 {
		t.Errorf("breaches: %v", d.Breaches)
	}
}

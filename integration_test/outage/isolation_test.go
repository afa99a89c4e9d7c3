package outage_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// A server whose transactions are serializable unless they say otherwise. keytill's do.
func TestEverythingWorksOnAServerOfSerializableTransactions(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{Fast: true, Settings: map[string]string{"default_transaction_isolation": "serializable"}})
	address := emptyDatabase(t, server, "serializable")
	c := wholeFlow(t, address, address, 14)
	if c.refused > 0 || c.broken > 0 {
		t.Errorf("%d events were answered 503, and %d calls of the API 5xx, though nothing is broken", c.refused, c.broken)
	}
	log, err := os.ReadFile(filepath.Join(server.Dir(), "postgres.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(log, []byte("could not serialize access")); n > 0 {
		t.Errorf("%d statements ran in serializable transactions and failed", n)
	}
}

// refusing has the database refuse a share of the statements that change something, and of the commits, as it does when
// transactions get into each other's way.
const refusing = `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF random() < 0.02 THEN
		RAISE EXCEPTION 'refused by the test' USING ERRCODE = CASE WHEN random() < 0.5 THEN '40001' ELSE '40P01' END;
	END IF;
	RETURN NULL;
END $$;
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY ARRAY['events', 'orders', 'lines', 'fulfilments', 'keys', 'movements', 'deliveries', 'batches'] LOOP
		EXECUTE format('CREATE TRIGGER refuse AFTER INSERT OR UPDATE OR DELETE ON keytill.%I FOR EACH STATEMENT EXECUTE FUNCTION refuse()', name);
	END LOOP;
	FOREACH name IN ARRAY ARRAY['events', 'orders', 'batches'] LOOP
		EXECUTE format('CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE ON keytill.%I
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()', name);
	END LOOP;
END $$;`

// The database refuses transactions at random, and nobody outside notices: they are run again.
func TestRefusedTransactionsAreRunAgainUnnoticed(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{Fast: true})
	s := open(t, server.URL(), firstKeys)
	_, err := s.db.Exec(t.Context(), refusing)
	s.must(err)
	c := s.gather(firstKeys, 15)
	first, second := s.serve(s.url), s.serve(s.url)
	c.visit(first, second)
	c.work(length(200, 10_000), judgePatience)
	c.goHome()
	c.settleDebts(judgePatience)
	c.complete(judgePatience, c.everything())
	first.stop(t)
	second.stop(t)
	_, err = s.db.Exec(t.Context(), `DROP FUNCTION refuse CASCADE`) // the judge's own statements are not run again
	s.must(err)
	c.judge(s.url, 1)
	if c.refused > 0 || c.broken > 0 {
		t.Errorf("%d events were answered 503, and %d calls of the API 5xx: what the database asks to try again was not", c.refused, c.broken)
	}
	log, err := os.ReadFile(filepath.Join(server.Dir(), "postgres.log"))
	s.must(err)
	if n := bytes.Count(log, []byte("refused by the test")); n < 10 {
		t.Errorf("only %d transactions were refused", n)
	} else {
		t.Log(fmt.Sprint(n) + " statements and commits were refused")
	}
}

package migrations_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/sqltest"
)

// own are keytill's own tables: the job queue's and the migrations' version cannot be distributed by merchant.
const own = `
  FROM pg_class t
 WHERE t.relnamespace = 'keytill'::regnamespace AND t.relkind IN ('r', 'p')
   AND t.relname NOT LIKE 'river\_%' AND t.relname <> 'schema_version'`

func TestEveryTableHasAMerchantAndAPrimaryKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if n := len(list(t, db, `SELECT t.relname::text`+own)); n < 14 {
		t.Fatalf("%d tables of keytill's own", n)
	}
	without := list(t, db, `SELECT t.relname::text`+own+`
   AND NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = 'merchant_id' AND a.attnotnull)`)
	if len(without) > 0 {
		t.Errorf("tables without merchant_id NOT NULL: %v", without)
	}
	without = list(t, db, `SELECT t.relname::text`+own+`
   AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conrelid = t.oid AND c.contype = 'p')`)
	if len(without) > 0 {
		t.Errorf("tables without a primary key: %v", without)
	}
}

func TestEveryUniqueIndexBeginsWithTheMerchant(t *testing.T) {
	t.Parallel()
	const unique = `
SELECT i.indexrelid::regclass::text
  FROM pg_index i
  LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
 WHERE i.indisunique AND i.indrelid IN (SELECT t.oid` + own + `)`
	db := pgtest.New(t)
	if n := len(list(t, db, unique)); n < 18 {
		t.Fatalf("%d unique indexes", n)
	}
	if wrong := list(t, db, unique+` AND a.attname IS DISTINCT FROM 'merchant_id'`); len(wrong) > 0 {
		t.Errorf("unique, and across merchants: %v", wrong)
	}
}

func TestNoForeignKeyCrossesMerchants(t *testing.T) {
	t.Parallel()
	const foreign = `
SELECT c.conname::text
  FROM pg_constraint c
  JOIN pg_attribute here ON here.attrelid = c.conrelid AND here.attnum = c.conkey[1]
  JOIN pg_attribute there ON there.attrelid = c.confrelid AND there.attnum = c.confkey[1]
 WHERE c.contype = 'f' AND c.conrelid IN (SELECT t.oid` + own + `)`
	db := pgtest.New(t)
	if n := len(list(t, db, foreign)); n < 9 {
		t.Fatalf("%d foreign keys", n)
	}
	if wrong := list(t, db, foreign+` AND (here.attname <> 'merchant_id' OR there.attname <> 'merchant_id')`); len(wrong) > 0 {
		t.Errorf("foreign keys that lack the merchant: %v", wrong)
	}
}

// One from a table that every claim writes would lock the pool's one row in every claim.
func TestTheClaimsTablesHaveNoForeignKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	found := list(t, db, `SELECT conname::text FROM pg_constraint
 WHERE contype = 'f' AND conrelid IN ('keytill.keys'::regclass, 'keytill.movements'::regclass)`)
	if len(found) > 0 {
		t.Errorf("foreign keys: %v", found)
	}
}

// position in any other index, and the planner has been seen to walk that one from its start.
func TestPositionIsInOneIndex(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	found := list(t, db, `SELECT indexname::text FROM pg_indexes WHERE schemaname = 'keytill' AND tablename = 'keys' AND indexdef LIKE '%position%'`)
	if diff := cmp.Diff([]string{"keys_available"}, found); diff != "" {
		t.Errorf("indexes with position (-want +got):\n%s", diff)
	}
}

func TestTheSchemasWordsAreTheCodes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, word := range []struct{ dir, name, table, column string }{
		{"../inventory", "State", "keytill.keys", "state"},
		{"../inventory", "Shortage", "keytill.pools", "shortage"},
		{"../fulfillment", "UnitState", "keytill.fulfilments", "state"},
		{"../fulfillment", "RevokedBy", "keytill.fulfilments", "revoked_by"},
		{"../fulfillment", "PaymentState", "keytill.orders", "payment"},
		{"../fulfillment", "FindingKind", "keytill.findings", "kind"},
		{"../fulfillment", "Channel", "keytill.deliveries", "channel"},
		{"../fulfillment", "DeliveryState", "keytill.deliveries", "state"},
	} {
		constants, err := sqltest.Constants(word.dir, word.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(sqltest.Checked(t, db, word.table, word.column), constants); diff != "" {
			t.Errorf("%s.%s and %s (-schema +code):\n%s", word.table, word.column, word.name, diff)
		}
	}
}

func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	sqltest.Prepare(t, pgtest.New(t), ".", nil)
}
